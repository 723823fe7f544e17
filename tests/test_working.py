"""Test the progress display of long tasks: the step and the remaining time in a terminal, and nothing in a pipe."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from kernelpath.show import view


@pytest.mark.parametrize(
    ("terminal", "progress_line"), [(True, "transpose: case 3 of 8 (about 12 s last time)"), (False, "")]
)
def test_a_step_is_shown_only_in_a_terminal(terminal: bool, progress_line: str) -> None:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=80)
    with view.show_working(console, "transpose", last_seconds=12.3) as tell:
        tell("case 3 of 8")
    assert isinstance(console.file, io.StringIO)
    assert (progress_line in console.file.getvalue()) if terminal else not console.file.getvalue()


def test_the_remaining_time_is_estimated_from_the_elapsed_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    several = view.TaskSequence(3)
    labels = [several.next("a")]
    now[0] += 40
    labels.append(several.next("b"))
    now[0] += 200
    labels.append(several.next("c"))
    assert labels == ["1 of 3: a", "2 of 3, about 80 s left: b", "3 of 3, about 2 min left: c"]
    assert view.TaskSequence(1).next("a") == "a"
