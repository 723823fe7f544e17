"""Copies: from the host to the device, piece by piece, while the next piece is made ready.

Week 2. Two pinned buffers in turn, events, and a status after every call. Graded on values, on what is given back, on
failures, and on the time, all on a simulated bus: a real one seldom shows what was done too early. The notebook
measures on the real one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelpath.course.spec import EXACT, Exercise, Question

OUT_OF_MEMORY, LAUNCH_FAILURE = 2, 719
"""Statuses of the CUDA runtime. Source: CUDA Runtime API, cudaError_t."""

BYTES_PER_SECOND, CALL_SECONDS, ALLOCATION_SECONDS = 2.5e9, 0.2e-6, 10e-6
CHUNK = 8192
PINNED_AT_MOST = 4 * CHUNK
PIECES = 24


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
        """Give a pinned buffer back, without waiting for its copies. Raises ValueError if it is not to be had back."""
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


class Simulated(Runtime):
    """A bus and a clock that are made up. Bytes move when the host has waited for them, and not before."""

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
        for copy in [copy for copy in self._queue if copy.done <= self._now]:
            copy.target.copy_(copy.source)
            self._queue.remove(copy)
        return 0

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

    def _event(self) -> torch.cuda.Event:
        return torch.cuda.current_stream().record_event()

    def _wait(self, event: torch.cuda.Event) -> int:
        event.synchronize()
        return 0

    def _times_of_ideal(self) -> float:
        return 1.0


def inputs(rng: torch.Generator, n: int, fails: int, status: int) -> tuple[Runtime, torch.Tensor, int]:
    """The runtime, n float32 in pageable memory of the host, and how many of them a buffer may hold."""
    seed = int(torch.randint(1 << 31, (), generator=rng, device=rng.device))
    source = torch.randn(n, generator=torch.Generator().manual_seed(seed))
    return Simulated(rng.device.type, fails, status), source, CHUNK


def reference(runtime: Runtime, source: torch.Tensor, chunk: int) -> tuple[torch.Tensor, torch.Tensor]:
    """After a failure the target counts as zeros."""
    target = torch.zeros_like(source) if runtime.fails else source
    status = runtime.status if runtime.fails else 0
    return target.to(runtime.device), torch.tensor([status, 0, 1], device=runtime.device)


def complaint(inputs: Sequence[Any], outputs: Sequence[torch.Tensor]) -> str | None:
    """What the ledger says, in words."""
    runtime: Runtime = inputs[0]
    status, kept, times = outputs[1].tolist()
    after = f" after call {runtime.fails} failed" if runtime.fails else ""
    if runtime.fails and status != runtime.status:
        raised = f"raised status {status}" if status else "raised no error"
        return f"{raised} where call {runtime.fails} had returned status {runtime.status}"
    if status == OUT_OF_MEMORY and not runtime.fails:
        return f"raised status {status}: more than {PINNED_AT_MOST:,} elements were pinned at a time"
    if kept:
        return f"{kept} pinned buffer{'s were' if kept > 1 else ' was'} not given back{after}"
    if times > 1:
        return f"took {times} times as long as with overlapped copies: the host and the bus waited for each other"
    return None


def case(n: int, fails: int = 0, status: int = 0) -> dict[str, int]:
    return {"n": n, "fails": fails, "status": status}


EXERCISE = Exercise(
    entry="copies",
    inputs=inputs,
    cases=(
        case(1),
        case(CHUNK - 1),
        case(CHUNK),
        case(CHUNK + 1),
        case(PIECES * CHUNK - 17),
        case(PIECES * CHUNK - 17, fails=1, status=OUT_OF_MEMORY),
        case(PIECES * CHUNK - 17, fails=2, status=OUT_OF_MEMORY),
        case(PIECES * CHUNK - 17, fails=9, status=LAUNCH_FAILURE),
    ),
    reference=reference,
    tolerance={"float32": EXACT, "int64": EXACT},
    bytes_moved=lambda n, fails, status: 4 * n,
    kind="python",
    check=complaint,
    hints=(
        "Three things can be wrong, and the report says which. Values: was a buffer filled again before its copy was"
        " done, or did you return before the last one was? Errors: did you look at every status, and what has to happen"
        " to the buffers when you leave early? Time: who is idle, and when?",
        "The host fills a buffer while the device copies the other one. So before it fills a buffer, it waits for the"
        " copy of two pieces ago, which used the same one: an event recorded right after that copy. At the end wait for"
        " everything. `try: ... finally:` gives the buffers back in any case.",
        "`for index, start in enumerate(range(0, n, chunk)):` take `slot = index % 2`; `if events[slot] is not None:"
        " check(runtime.wait(events[slot]))`; fill `buffers[slot][: piece.numel()]`; `check(runtime.copy_async(...))`;"
        " `status, events[slot] = runtime.record()`; check it. Append each buffer to a list as soon as its"
        " status is checked, so that `finally` knows what there is to free.",
    ),
    questions=(
        Question(
            ask="Filling a buffer takes 13 microseconds on the host, copying it another 13 on the bus. 24 pieces: how"
            " many microseconds does it take if each step waits for the one before?",
            answer=624.0,
            why="24 * (13 + 13) = 624.",
        ),
        Question(
            ask="Filling a buffer takes 13 microseconds on the host, copying it another 13 on the bus. 24 pieces: how"
            " many microseconds does it take with two buffers, so that one is filled while the other is copied?",
            answer=325.0,
            why="The first fill, then 23 times both at once, then the last copy: 25 * 13 = 325. With many pieces it"
            " comes down to the slower of the two sides.",
            predict=True,
        ),
        Question(
            ask="Why can the GPU not read ordinary (pageable) memory by itself while the program goes on?",
            choices=(
                "its pages may be moved in the middle of the transfer",
                "it is slower than pinned memory and would stop the bus",
                "the bus of the GPU knows only addresses below 4 GB",
            ),
            answer="its pages may be moved in the middle of the transfer",
            why="The engine that copies works with physical addresses. Pinning promises that they stay. Too much of it"
            " takes memory away from everybody else, so two small buffers that are used again and again are better than"
            " pinning everything.",
        ),
        Question(
            ask="A kernel writes to an illegal address. Which call reports it?",
            choices=(
                "any later call that looks at the device",
                "the launch of that kernel, before it returns",
                "none, until the process ends",
            ),
            answer="any later call that looks at the device",
            why="The launch has long returned when the kernel goes wrong. So a copy's status may tell of a kernel's"
            " fault, and the habit is: check every status, and synchronize after each step while you search.",
        ),
    ),
    explain="The driver does something like this inside for every pageable copy. Beside one H200 two buffers of 4 MB"
    " still moved 14 GB/s where the driver moved 6, and memory that was pinned already 54: the host's own copy is the"
    " slower half. So it pays most where filling is real work (decoding, tokenizing, gathering rows), which then goes"
    " on while the bus works. A data loader with pin_memory and non_blocking=True is the same"
    " in PyTorch's words. The next steps: a second stream, so that a kernel works on piece k while piece k + 1 comes in"
    " and the result of k - 1 goes out (the bus has a lane for each direction), and ordering on the device with"
    " cudaStreamWaitEvent, so that the host does not wait at all.",
)
