"""A lane takes a submission's kernel from source to a launch: `cuda`, `triton` and `cute`.

Each lane calls `record` after every launch it makes; the grader listens through `observe`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernelpath import simt


class Unavailable(Exception):
    """This machine cannot run what was asked; the message is the reason, for the learner."""


@dataclass(frozen=True)
class Launched:
    """One kernel launch. `name` is the kernel's name without template arguments; `counted` is what the PTX machine saw."""

    lane: str
    name: str
    device: str
    counted: simt.Launch | None = None


_observers: list[list[Launched]] = []


def record(launched: Launched) -> None:
    """Tell every observer of a launch that has been made."""
    for seen in _observers:
        seen.append(launched)


@contextmanager
def observe() -> Iterator[list[Launched]]:
    """The launches made inside the `with` block, in order."""
    seen: list[Launched] = []
    _observers.append(seen)
    try:
        yield seen
    finally:
        _observers.remove(seen)
