"""A bus between host and device: pinned buffers, copies in flight, events, and a status after every call.

`Simulated` has a bus and a clock that are made up: a real bus seldom shows what was done too early, and its time
depends on the machine. `Gpu` is the real one, for measuring.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.cuda import synchronize as wait_for_the_gpu

from kernelpath.course.labs.virtual import Queue

OUT_OF_MEMORY, LAUNCH_FAILURE = 2, 719
"""Statuses of the CUDA runtime. Source: CUDA Runtime API, cudaError_t."""

BYTES_PER_SECOND, CALL_SECONDS, ALLOCATION_SECONDS = 2.5e9, 0.2e-6, 10e-6
CHUNK = 8192
"""Float32 that a buffer of the simulated exercise may hold: 13 µs of filling, 13 µs on the bus."""
PINNED_AT_MOST = 4 * CHUNK


@dataclass(frozen=True)
class Copy:
    """A copy in the queue. It reads its source as late as it may."""

    target: torch.Tensor
    source: torch.Tensor
    done: float


class Runtime:
    """What host code needs of the CUDA runtime. Every call returns its status first, 0 if all went well.

    fails: the number of the call, from 1, that does nothing and returns `status` instead; 0 for none. host_free never
    fails and is not counted. pinned_at_most: float32 in all pinned buffers together.
    """

    def __init__(self, device: str, fails: int, status: int, pinned_at_most: int) -> None:
        self.device, self.fails, self.status, self._pinned_at_most = device, fails, status, pinned_at_most
        self._calls = 0
        self._buffers: dict[int, torch.Tensor] = {}

    def host_alloc(self, count: int) -> tuple[int, torch.Tensor | None]:
        """A pinned buffer of `count` float32 on the host. All of them together are limited."""
        pinned = count + sum(buffer.numel() for buffer in self._buffers.values())
        if failed := self._failed() or (OUT_OF_MEMORY if pinned > self._pinned_at_most else 0):
            return failed, None
        buffer = self._allocate(count)
        self._buffers[buffer.data_ptr()] = buffer
        return 0, buffer

    def host_free(self, buffer: torch.Tensor) -> int:
        """Give a pinned buffer back, without waiting for its copies. Raises ValueError if it was not handed out."""
        if self._buffers.pop(buffer.data_ptr(), None) is None:
            raise ValueError("host_free got what host_alloc did not give, or what was given back before")
        self._free(buffer)
        return 0

    def fill(self, buffer: torch.Tensor, source: torch.Tensor) -> None:
        """Copy on the host, by the host."""
        buffer.copy_(source)

    def copy_async(self, target: torch.Tensor, source: torch.Tensor) -> int:
        """Put a copy from the host to the device into the queue."""
        return self._failed() or self._copy(target, source)

    def record(self) -> tuple[int, Any]:
        """An event that happens when everything that is in the queue now is done."""
        return (failed, None) if (failed := self._failed()) else (0, self._event())

    def wait(self, event: Any) -> int:
        """Wait on the host until the event has happened."""
        return self._failed() or self._wait(event)

    def synchronize(self) -> int:
        """Wait on the host until the queue is empty."""
        return self._failed() or self._wait(self._event())

    def ledger(self, status: int) -> torch.Tensor:
        """The status, the buffers not given back, and the time over that of overlapped copies, rounded."""
        times = 1 if status else max(1, round(self._times_of_ideal()))
        return torch.tensor([status, len(self._buffers), times], device=self.device)

    def _failed(self) -> int:
        self._calls += 1
        return self.status if self._calls == self.fails else 0

    def _allocate(self, count: int) -> torch.Tensor:
        raise NotImplementedError

    def _free(self, buffer: torch.Tensor) -> None:
        raise NotImplementedError

    def _copy(self, target: torch.Tensor, source: torch.Tensor) -> int:
        raise NotImplementedError

    def _event(self) -> Any:
        raise NotImplementedError

    def _wait(self, event: Any) -> int:
        raise NotImplementedError

    def _times_of_ideal(self) -> float:
        raise NotImplementedError


class Simulated(Runtime, Queue):
    """A bus and a clock that are made up. Bytes move when the host has waited for them, and not before.

    A submission that waits through torch.cuda waits for this bus. What it copies itself, in a stream of torch's, is in
    the current stream, behind what the device was given before: in a stream of its own it would overtake that.
    """

    def __init__(self, device: str, fails: int, status: int) -> None:
        Runtime.__init__(self, device, fails, status, PINNED_AT_MOST)
        self._now, self._free_at, self._bytes = 0.0, 0.0, 0
        self._queue: list[Copy] = []

    def fill(self, buffer: torch.Tensor, source: torch.Tensor) -> None:
        Runtime.fill(self, buffer, source)
        self._now += source.nbytes / BYTES_PER_SECOND

    def _failed(self) -> int:
        self._now += CALL_SECONDS
        return Runtime._failed(self)

    def _allocate(self, count: int) -> torch.Tensor:
        self._now += ALLOCATION_SECONDS
        return torch.empty(count)

    def _free(self, buffer: torch.Tensor) -> None:
        self._now += CALL_SECONDS

    def _copy(self, target: torch.Tensor, source: torch.Tensor) -> int:
        seconds = source.nbytes / BYTES_PER_SECOND
        self._bytes += source.nbytes
        if not any(_inside(source, buffer) for buffer in self._buffers.values()):
            target.copy_(source)  # pageable: the driver goes through a buffer of its own, and the host waits
            self._free_at = self._now = max(self._now, self._free_at) + 2 * seconds
            return 0
        self._free_at = max(self._now, self._free_at) + seconds
        self._queue.append(Copy(target, source, self._free_at))
        return 0

    def _event(self) -> float:
        return self._free_at

    def _wait(self, event: float) -> int:
        self._now = max(self._now, event)
        if self.device == "cuda":
            wait_for_the_gpu()  # for what a submission copied itself, out of memory that it may fill again now
        for copy in [copy for copy in self._queue if copy.done <= self._now]:
            copy.target.copy_(copy.source)
            self._queue.remove(copy)
        return 0

    def queue_reached(self) -> float:
        return max(self._now, self._free_at)

    def wait_until(self, moment: float) -> None:
        self._wait(moment)

    def has_passed(self, moment: float) -> bool:
        return self._now >= moment

    def _times_of_ideal(self) -> float:
        ideal = 2 * ALLOCATION_SECONDS + (self._bytes + 4 * CHUNK) / BYTES_PER_SECOND
        return self._now / ideal


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
