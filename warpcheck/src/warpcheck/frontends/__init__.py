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
    """This machine cannot run the requested kernel; the message gives the learner the reason."""


class NotSimulated(Unavailable, NotImplementedError):
    """A function or an operator of PyTorch for GPUs that is not simulated."""


@dataclass(frozen=True)
class Launched:
    """One completed kernel launch.

    Attributes:
        lane: The front end that launched the kernel: "cuda", "triton" or "cute".
        name: The kernel's name without template arguments.
        device: The device that ran the kernel, such as "cpu" or "cuda:0".
        arguments: The arguments as passed, tensors included.
        known_cost: The estimate of a PTX machine in another process; 0 for a launch on a GPU.
        counted: The counters and events of the PTX machine, if the machine runs in this process.
        source: The text that the kernel was compiled from, if the front end has it. Otherwise `counted.file` names it.
    """

    lane: str
    name: str
    device: str
    arguments: tuple[Any, ...]
    known_cost: int = 0
    counted: simt.Launch | None = None
    source: str = ""

    @property
    def cost(self) -> int:
        """The estimate of the PTX machine; 0 for a launch on a GPU."""
        return self.known_cost if self.counted is None else self.counted.cost


_observers: list[Callable[[Launched], None]] = []


def record(launched: Launched) -> None:
    """Report a completed launch to the audit hooks and to every observer."""
    # An audit hook cannot be removed, unlike an observer: a program under test cannot hide its launches from it.
    sys.audit("warpcheck.launched", launched)
    for observer in _observers:
        observer(launched)


def check(*, reverse: bool = False) -> None:
    """Enable the additional checks of graded launches in this process; for notebooks and tests.

    Reading memory from torch.empty before anything was written there becomes a fault. Call this function before the
    tensors are allocated, because only later allocations are tracked.

    Args:
        reverse: Run every launch a second time with blocks and warps in the opposite order, which doubles the time.
            A race that the forward order hides is then a fault, and a result that depends on the order a warning.
    """
    from warpcheck import backend, initcheck
    from warpcheck.schedule import Schedule

    initcheck.watch()
    backend.checks.extra_schedules = (Schedule.REVERSE,) * reverse


_compilation_observers: list[Callable[[bool], None]] = []


def compiling() -> _Compilation:
    """Mark the body of the `with` block as compilation, which has a time budget of its own."""
    return _Compilation()


class _Compilation:
    """A context manager that every launch enters: a generator would take three times as long."""

    def __enter__(self) -> None:
        _notify_compiling(True)

    def __exit__(self, *_: object) -> None:
        _notify_compiling(False)


def _notify_compiling(starts: bool) -> None:
    for observer in _compilation_observers:
        observer(starts)


def on_compiling(observer: Callable[[bool], None]) -> None:
    """Call `observer(True)` whenever a compiler starts and `observer(False)` when it ends, from now on."""
    _compilation_observers.append(observer)


@contextmanager
def observe_compiling(observer: Callable[[bool], None]) -> Iterator[None]:
    """Call `observer` as `on_compiling` does, inside the `with` block."""
    on_compiling(observer)
    try:
        yield
    finally:
        _compilation_observers.remove(observer)


@contextmanager
def observe(observer: Callable[[Launched], None]) -> Iterator[None]:
    """Call `observer` after every launch inside the `with` block, before the launching code continues."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)
