"""What a terminal shows while something takes long: what is being done, for how long, and how much longer it may take.

Nothing is shown if the output is not a terminal.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

Tell = Callable[[str], None]


@contextmanager
def working(console: Console, label: str, about: float | None = None) -> Iterator[Tell]:
    """Yields what to call with the step that begins. about: seconds that it took the last time."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as shown:
        task = shown.add_task(label)
        usual = f" (about {duration(about)} last time)" if about else ""

        def tell(step: str) -> None:
            shown.update(task, description=f"{label}: {step}{usual}")

        yield tell


class Several:
    """Many things one after another, and how long the rest takes if it goes on like this."""

    def __init__(self, count: int) -> None:
        self._count, self._done, self._begun = count, 0, time.monotonic()

    def next(self, name: str) -> str:
        """The label of the thing that begins: "3 of 18, about 4 min left: transpose"."""
        each = (time.monotonic() - self._begun) / self._done if self._done else 0.0
        left = f", about {duration(each * (self._count - self._done))} left" if self._done else ""
        self._done += 1
        return f"{self._done} of {self._count}{left}: {name}" if self._count > 1 else name


def duration(seconds: float) -> str:
    """Roughly: "8 s", "4 min"."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
