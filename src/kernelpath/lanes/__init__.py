"""A lane takes a submission's kernel from source to a launch: `cuda`, `triton` and `cute`.

Each lane calls `record` after every launch it makes; the grader listens through `observe`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelpath import simt


class Unavailable(Exception):
    """This machine cannot run what was asked; the message is the reason, for the learner."""


@dataclass(frozen=True)
class Launched:
    """One kernel launch that has been made.

    name: the kernel's name without template arguments. arguments: as passed, tensors included.
    counted: what the PTX machine saw; None on a GPU and in Triton's interpreter.
    """

    lane: str
    name: str
    device: str
    arguments: tuple[Any, ...]
    counted: simt.Launch | None = None


_observers: list[Callable[[Launched], None]] = []


def record(launched: Launched) -> None:
    """Tell every observer of a launch that has been made."""
    for observer in _observers:
        observer(launched)


@contextmanager
def observe(observer: Callable[[Launched], None]) -> Iterator[None]:
    """Call `observer` after every launch made inside the `with` block, before the launching code goes on."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)
