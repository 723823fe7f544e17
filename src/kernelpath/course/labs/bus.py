"""Simulate a bus between host and device: pinned buffers, copies in flight, events, and a status after every call.

`SimulatedRuntime` has a simulated bus and clock: a real bus seldom shows that something was done too early, and its
time depends on the machine. `Gpu` is the real bus, for measuring.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelpath.course.labs.virtual import Queue

# Statuses of the CUDA runtime. Source: CUDA Runtime API, cudaError_t.
OUT_OF_MEMORY = 2
LAUNCH_FAILURE = 719

# The rate of the bus, and of a copy by the host.
BYTES_PER_SECOND = 2.5e9
# The host's time for each call, and for an allocation in addition.
CALL_SECONDS = 0.2e-6
ALLOCATION_SECONDS = 10e-6

# The float32 elements of a buffer in the simulated exercise: 13 µs of filling, 13 µs on the bus.
CHUNK = 8192

# The float32 elements of all pinned buffers together.
PINNED_AT_MOST = 4 * CHUNK


@dataclass(frozen=True, eq=False)
class Copy:
    """A copy in the queue. It reads its source as late as possible."""

    target: torch.Tensor
    source: torch.Tensor
    done: float


@dataclass
class RuntimeUsage:
    """The use of a runtime.

    Attributes:
        calls: The calls that can fail, in order.
        live_buffers: The pinned buffers that were not freed.
        lines: The lines of those calls in the submission; 0 if unknown.
        freed_early: The pinned buffers freed while a copy from them was in the queue.
        refilled_early: The elements that the host overwrote before a copy of them was done.
        refilled_line: The line that did so first.
        seconds: The time of a virtual clock.
        nbytes: The bytes of all requested copies.
    """

    calls: list[str] = field(default_factory=list)
    live_buffers: int = 0
    lines: list[int] = field(default_factory=list)
    freed_early: int = 0
    refilled_early: int = 0
    refilled_line: int = 0
    seconds: float = 0.0
    nbytes: int = 0


class Runtime(ABC):
    """The part of the CUDA runtime that host code needs. Every call returns its status first, 0 for success.

    Attributes:
        fails: The number of the call, from 1, that does nothing and returns `status` instead; 0 for none. host_free
            never fails and is not counted.
    """

    def __init__(self, device: str, fails: int, status: int, pinned_at_most: int) -> None:
        self.device = device
        self.fails = fails
        self.status = status
        self._pinned_at_most = pinned_at_most
        self.spent = RuntimeUsage()
        self._buffers: dict[int, torch.Tensor] = {}

    @property
    def failed(self) -> bool:
        """Return whether the failing call was made."""
        return 0 < self.fails <= len(self.spent.calls)

    def host_alloc(self, count: int) -> tuple[int, torch.Tensor | None]:
        """Allocate a pinned buffer of `count` float32 on the host. The sum of all buffers is limited."""
        pinned = count + sum(buffer.numel() for buffer in self._buffers.values())
        if failed := self._failed("host_alloc") or (OUT_OF_MEMORY if pinned > self._pinned_at_most else 0):
            return failed, None
        buffer = self._allocate(count)
        # By address, because a submission may pass a view of the buffer instead of the buffer.
        self._buffers[buffer.data_ptr()] = buffer
        self.spent.live_buffers += 1
        return 0, buffer

    def host_free(self, buffer: torch.Tensor) -> int:
        """Free a pinned buffer without waiting for its copies. Raises ValueError for other memory."""
        pinned = self._buffers.pop(buffer.data_ptr(), None)
        if pinned is None:
            raise ValueError("host_free got memory that host_alloc did not return, or that was already freed")
        self.spent.live_buffers -= 1
        self._free(pinned)
        return 0

    def fill(self, buffer: torch.Tensor, source: torch.Tensor) -> None:
        """Copy on the host, by the host."""
        buffer.copy_(source)

    def copy_async(self, target: torch.Tensor, source: torch.Tensor) -> int:
        """Put a copy from the host to the device into the queue."""
        return self._failed("copy_async") or self._copy(target, source)

    def record(self) -> tuple[int, Any]:
        """Return an event that completes when everything now in the queue has completed."""
        return (failed, None) if (failed := self._failed("record")) else (0, self._event())

    def wait(self, event: Any) -> int:
        """Wait on the host until the event has completed."""
        return self._failed("wait") or self._wait(event)

    def synchronize(self) -> int:
        """Wait on the host until the queue is empty."""
        return self._failed("synchronize") or self._wait(self._event())

    def ledger(self, status: int) -> torch.Tensor:
        """Return the status, the buffers not freed, and the time relative to overlapped copies, rounded."""
        times = 1 if status else max(1, round(self._times_of_ideal()))
        return torch.tensor([status, self.spent.live_buffers, times], device=self.device)

    def _failed(self, call: str) -> int:
        self.spent.calls.append(call)
        return self.status if len(self.spent.calls) == self.fails else 0

    @abstractmethod
    def _allocate(self, count: int) -> torch.Tensor: ...

    @abstractmethod
    def _free(self, buffer: torch.Tensor) -> None: ...

    @abstractmethod
    def _copy(self, target: torch.Tensor, source: torch.Tensor) -> int: ...

    @abstractmethod
    def _event(self) -> Any: ...

    @abstractmethod
    def _wait(self, event: Any) -> int: ...

    @abstractmethod
    def _times_of_ideal(self) -> float: ...


class SimulatedRuntime(Runtime, Queue):
    """A simulated bus and clock. Bytes move when the host has waited for them, and not before.

    Attributes:
        each: Let `variants` return a bus for every call that was made of this one, on which that call fails.
    """

    def __init__(self, device: str, fails: int, status: int, each: bool = False) -> None:
        Runtime.__init__(self, device, fails, status, PINNED_AT_MOST)
        self.each = each
        self._free_at = 0.0
        self.queue: list[Copy] = []

    def fill(self, buffer: torch.Tensor, source: torch.Tensor) -> None:
        Runtime.fill(self, buffer, source)
        self.host_copies(source.nbytes)

    def host_copies(self, nbytes: int) -> None:
        """Advance the clock by the time that the host needs to copy so many bytes."""
        self.spent.seconds += nbytes / BYTES_PER_SECOND

    def _failed(self, call: str) -> int:
        self.spent.seconds += CALL_SECONDS
        return Runtime._failed(self, call)

    def _allocate(self, count: int) -> torch.Tensor:
        self.spent.seconds += ALLOCATION_SECONDS
        return torch.empty(count)

    def _free(self, buffer: torch.Tensor) -> None:
        self.spent.seconds += CALL_SECONDS
        if any(_inside(copy.source, buffer) for copy in self.queue):
            self.spent.freed_early += not self._synchronize_failed
            buffer.fill_(math.nan)  # freed memory may be reused, and the copy still reads it

    @property
    def _synchronize_failed(self) -> bool:
        """Return whether synchronize failed, after which nothing runs on a GPU and no more is required."""
        return self.failed and self.spent.calls[self.fails - 1] == "synchronize"

    def _copy(self, target: torch.Tensor, source: torch.Tensor) -> int:
        seconds = source.nbytes / BYTES_PER_SECOND
        self.spent.nbytes += source.nbytes
        if not any(_inside(source, buffer) for buffer in self._buffers.values()):
            target.copy_(source)  # pageable: the driver goes through a buffer of its own, and the host waits
            self._free_at = self.spent.seconds = self.queue_reached() + 2 * seconds
            return 0
        self._free_at = self.queue_reached() + seconds
        self.queue.append(Copy(target, source, self._free_at))
        return 0

    def _event(self) -> float:
        return self._free_at

    def _wait(self, event: float) -> int:
        self.spent.seconds = max(self.spent.seconds, event)
        # A list of its own, because the loop removes from the queue.
        for copy in [copy for copy in self.queue if copy.done <= self.spent.seconds]:
            copy.target.copy_(copy.source)
            self.queue.remove(copy)
        return 0

    def queue_reached(self) -> float:
        return max(self.spent.seconds, self._free_at)

    def wait_until(self, moment: float) -> None:
        self._wait(moment)

    def has_passed(self, moment: float) -> bool:
        return self.spent.seconds >= moment

    def variants(self) -> Iterator[SimulatedRuntime]:
        for call, _ in enumerate(self.spent.calls if self.each else (), 1):
            yield SimulatedRuntime(self.device, call, self.status)

    def graded(self, outputs: Sequence[torch.Tensor], device_outputs: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Return the vector as copies have left it, and the actual ledger with the reported status.

        After an error the vector is the submission's. If the submission reported no error that occurred, the ledger
        shows it, and the vector is what it should be.
        """
        if len(outputs) != 2 or outputs[1].shape != (3,) or outputs[1].dtype != torch.int64:
            return outputs
        status = int(outputs[1][0])
        vector = outputs[0] if status else torch.zeros_like(outputs[0]) if self.failed else device_outputs[0]
        return vector, self.ledger(status)

    def _times_of_ideal(self) -> float:
        # Two buffers, of which the host fills one while the other is on the bus, which takes as long. Only the first
        # filling, of 4 bytes for each element of a chunk, overlaps with no copy.
        ideal = 2 * ALLOCATION_SECONDS + (self.spent.nbytes + 4 * CHUNK) / BYTES_PER_SECOND
        return self.spent.seconds / ideal


def _inside(tensor: torch.Tensor, buffer: torch.Tensor) -> bool:
    start = tensor.data_ptr() - buffer.data_ptr()
    return 0 <= start <= buffer.nbytes - tensor.nbytes


class Gpu(Runtime):
    """The GPU of this machine, for measuring. No call fails on purpose."""

    def __init__(self, pinned_at_most: int) -> None:
        Runtime.__init__(self, "cuda", 0, 0, pinned_at_most)

    def _allocate(self, count: int) -> torch.Tensor:
        import ctypes

        from cuda.bindings import runtime

        status, address = runtime.cudaHostAlloc(4 * count, runtime.cudaHostAllocDefault)
        if status != 0:
            raise MemoryError(f"cudaHostAlloc of {4 * count:,} bytes failed: {status.name}")
        return torch.frombuffer((ctypes.c_float * count).from_address(address), dtype=torch.float32)

    def _free(self, buffer: torch.Tensor) -> None:
        from cuda.bindings import runtime

        runtime.cudaFreeHost(buffer.data_ptr())

    def _copy(self, target: torch.Tensor, source: torch.Tensor) -> int:
        target.copy_(source, non_blocking=True)
        return 0

    def _event(self) -> Any:
        return torch.cuda.current_stream().record_event()

    def _wait(self, event: Any) -> int:
        event.synchronize()
        return 0

    def _times_of_ideal(self) -> float:
        return 1.0
