"""A lane takes a submission's kernel from source to a launch: `cuda`, `triton` and `cute`.

Each lane calls `record` after every launch it makes; the grader listens with an audit hook, others through
`observe`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warpcheck import simt


class Unavailable(Exception):
    """This machine cannot run what was asked; the message is the reason, for the learner."""


@dataclass(frozen=True)
class Launched:
    """One kernel launch that has been made.

    name: the kernel's name without template arguments. arguments: as passed, tensors included.
    cost: as the PTX machine counts it; 0 elsewhere. counted: all that it saw, where it is in this process.
    source: the text that the kernel was compiled from, if the front end has it; else it is in the file of `counted`.
    """

    lane: str
    name: str
    device: str
    arguments: tuple[Any, ...]
    cost: int = 0
    counted: simt.Launch | None = None
    source: str = ""


_observers: list[Callable[[Launched], None]] = []


def record(launched: Launched) -> None:
    """Tell every observer, and the audit hooks, of a launch that has been made."""
    sys.audit("warpcheck.launched", launched)
    for observer in _observers:
        observer(launched)


def check(*, reverse: bool = False) -> None:
    """Let launches in this process find more, as graded ones do; for notebooks and tests.

    A kernel that reads memory from torch.empty before anything was written there is at fault from now on: call this
    before the tensors are made. reverse: run every launch a second time with its blocks and warps in the opposite
    order, which doubles its time. Races that one order hides are faults then, and a result that depends on the order
    is a warning.
    """
    from warpcheck import backend, unwritten
    from warpcheck.schedule import Schedule

    unwritten.watch()
    backend.checks.extra_schedules = (Schedule.REVERSE,) * reverse


_on_compiling: list[Callable[[bool], None]] = []


@contextmanager
def compiling() -> Iterator[None]:
    """What runs inside compiles, which has a time budget of its own. Lanes put their compilers in it."""
    tell_compiling(True)
    try:
        yield
    finally:
        tell_compiling(False)


def tell_compiling(begins: bool) -> None:
    """For compilers that call back where no `with` can be put round them."""
    for tell in _on_compiling:
        tell(begins)


def on_compiling(tell: Callable[[bool], None]) -> None:
    """Call `tell(True)` whenever a compiler begins and `tell(False)` when it is done, from now on."""
    _on_compiling.append(tell)


@contextmanager
def observe(observer: Callable[[Launched], None]) -> Iterator[None]:
    """Call `observer` after every launch made inside the `with` block, before the launching code goes on."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)
