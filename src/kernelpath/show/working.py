"""Show on a terminal what takes long, how long it has taken, and how much longer it may take.

If the output is not a terminal, nothing is shown.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

ReportStep = Callable[[str], None]


@contextmanager
def show_working(console: Console, label: str, last_seconds: float | None = None) -> Iterator[ReportStep]:
    """Yield a function to call with the name of each step.

    Args:
        last_seconds: The seconds that the same work took the last time.
    """
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(label)
        last_duration = f" (about {format_duration(last_seconds)} last time)" if last_seconds else ""

        def report_step(step: str) -> None:
            progress.update(task, description=f"{label}: {step}{last_duration}")

        yield report_step


class TaskSequence:
    """Count tasks that run one after another, and estimate the remaining time."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._done = 0
        self._start = time.monotonic()

    def next(self, name: str) -> str:
        """Return the label of the next task: "3 of 18, about 4 min left: transpose"."""
        seconds_per_task = (time.monotonic() - self._start) / self._done if self._done else 0.0
        estimate = (
            f", about {format_duration(seconds_per_task * (self._count - self._done))} left" if self._done else ""
        )
        self._done += 1
        return f"{self._done} of {self._count}{estimate}: {name}" if self._count > 1 else name


def format_duration(seconds: float) -> str:
    """Format a duration roughly: "8 s", "4 min"."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
