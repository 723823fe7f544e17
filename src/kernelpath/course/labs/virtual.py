"""Define what a simulated device has in common with torch.cuda: one queue, events in it, and ways to wait.

A submission gets the simulated device, but on a real GPU it could also use torch.cuda. Inside `during`, torch.cuda
therefore refers to the simulated device, with a GPU and without one. All streams are one.
"""

from __future__ import annotations

import contextlib
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from kernelpath.course.labs import Lab


class Queue(Lab):
    """A device that works through one queue, in virtual time in seconds."""

    @abstractmethod
    def queue_reached(self) -> float:
        """Return the time at which a command that is queued now would start."""

    @abstractmethod
    def wait_until(self, moment: float) -> None:
        """Let the host wait for a time of the device, which may be past."""

    @abstractmethod
    def has_passed(self, moment: float) -> bool: ...

    def drain(self, _: object = None) -> None:
        """Let the host wait until the queue is empty."""
        self.wait_until(self.queue_reached())

    @contextlib.contextmanager
    def during(self, names: dict[str, Any]) -> Iterator[None]:
        """Replace the real functions by those of `stand_ins` in this process, and restore them at the end.

        A function that the submission itself replaced meanwhile is left, to be seen.

        Args:
            names: The globals of the submission, which may hold such a function under a name of its own
                (`from time import perf_counter`).
        """
        virtual = self.stand_ins()
        replaced: list[tuple[dict[str, Any], str, Any, Any]] = []
        # `from time import perf_counter` binds a name in the submission, which a change of the module does not reach.
        for namespace in (vars(time), vars(torch.cuda), names):
            for name, real in list(namespace.items()):
                if (stand_in := virtual.get(id(real))) is not None:
                    namespace[name] = stand_in
                    replaced.append((namespace, name, real, stand_in))
        try:
            yield
        finally:
            for namespace, name, real, stand_in in replaced:
                # A name that the submission bound to something else meanwhile is evidence, and is kept.
                if namespace.get(name) is stand_in:
                    namespace[name] = real

    def stand_ins(self) -> Mapping[int, Any]:
        """Return the replacement of each real function and class, by the id of the real one."""

        def event(*_: object, **__: object) -> Event:
            return Event(self)

        # All streams are the one queue. On a real stream, a submission's copy could overtake the fill of fresh memory,
        # and a wait would not reach the simulated device.
        def stream(*_: object, **__: object) -> Stream:
            return Stream(self)

        return {
            id(torch.cuda.synchronize): self.drain,
            id(torch.cuda.Event): event,
            id(torch.cuda.Stream): stream,
            id(torch.cuda.current_stream): stream,
            id(torch.cuda.default_stream): stream,
            id(torch.cuda.stream): contextlib.nullcontext,
        }


class Event:
    """The simulated torch.cuda.Event: a mark in the queue, stamped when the device reaches it."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._moment: float | None = None

    def record(self, _: object = None) -> None:
        self._moment = self._queue.queue_reached()

    def wait(self, _: object = None) -> None:
        """Do nothing: the only stream works in order."""

    def query(self) -> bool:
        return self._queue.has_passed(self._stamp())

    def synchronize(self) -> None:
        self._queue.wait_until(self._stamp())

    def elapsed_time(self, end: Event) -> float:
        """Return the milliseconds between two marks. Raises RuntimeError before both are reached, as CUDA does."""
        if not (self.query() and end.query()):
            raise RuntimeError("an event has not completed yet; synchronize before you ask for the time")
        return 1e3 * (end._stamp() - self._stamp())

    def _stamp(self) -> float:
        if self._moment is None:
            raise RuntimeError("the event was not recorded")
        return self._moment


class Stream:
    """The simulated torch.cuda.Stream: the only queue."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def synchronize(self) -> None:
        self._queue.drain()

    def query(self) -> bool:
        return self._queue.has_passed(self._queue.queue_reached())

    def record_event(self, event: Event | None = None) -> Event:
        mark = event or Event(self._queue)
        mark.record()
        return mark

    def wait_event(self, event: Event) -> None:
        """Do nothing: the only queue works in order."""

    def wait_stream(self, stream: Stream) -> None:
        """Do nothing, as in `wait_event`."""
