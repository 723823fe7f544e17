"""What is shown while something takes long: at a terminal what goes on and how long yet, in a pipe nothing."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from kernelpath.show import view


@pytest.mark.parametrize(("terminal", "shown"), [(True, "transpose: case 3 of 8 (about 12 s last time)"), (False, "")])
def test_a_step_is_shown_at_a_terminal_alone(terminal: bool, shown: str) -> None:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=80)
    with view.show_working(console, "transpose", last_seconds=12.3) as tell:
        tell("case 3 of 8")
    assert isinstance(console.file, io.StringIO)
    assert (shown in console.file.getvalue()) if terminal else not console.file.getvalue()


def test_what_is_left_follows_from_what_was_done(monkeypatch: pytest.MonkeyPatch) -> None:
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
