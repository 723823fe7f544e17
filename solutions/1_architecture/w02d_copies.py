"""Copies: overlap host-to-device transfers with host work.

upload copies a vector from ordinary (pageable) host memory to the device, through two pinned buffers of at most `chunk`
elements each. While the device copies one buffer, the host fills the other. At most 4 * chunk elements can be pinned at
a time. The runtime is a small part of the CUDA runtime. Every call returns its status first, and every call except
host_free may fail:

    status, buffer = runtime.host_alloc(count)       a pinned buffer of `count` float32; slow, so call it rarely
    status = runtime.host_free(buffer)               frees it without waiting for anything; never fails here
    status = runtime.copy_async(target, source)      puts a copy into the queue and returns at once
    status, event = runtime.record()                 an event that completes when all work queued so far is done
    status = runtime.wait(event)                     waits until the event has completed
    status = runtime.synchronize()                   waits until the queue is empty

The host itself copies with runtime.fill(buffer, source). Slices work everywhere: target[start:end].

The grader checks the values on the device when upload returns; that the first nonzero status is raised as CudaError;
that every buffer is always freed, but not while a copy from it is still in the queue; and, on a simulated device,
the time. A copy reads its source as late as it may, so if you overwrite a buffer too early, the device receives the new
data. Each line of the report is a case with n elements. With `fails=2 status=2`, the second call that can fail does
nothing and returns status 2; with `fails=0`, no call fails; and with `fails=each`, every call fails once, each in a
separate run.
"""

import torch


class CudaError(Exception):
    """A call failed. Its status says why: 2 means out of memory, and 719 means that a kernel failed earlier."""

    def __init__(self, status: int) -> None:
        super().__init__(f"CUDA error {status}")
        self.status = status


def check(status: int) -> None:
    """Raise CudaError unless the status is 0."""
    if status != 0:
        raise CudaError(status)


def upload(runtime, source: torch.Tensor, target: torch.Tensor, chunk: int) -> None:
    """Copy source (float32, on the host) to target (of equal length, on the device). Raises CudaError."""
    buffers = []
    events = [None, None]
    try:
        for _ in events:
            status, buffer = runtime.host_alloc(min(chunk, source.numel()))
            check(status)
            buffers.append(buffer)
        for index, start in enumerate(range(0, source.numel(), chunk)):
            slot = index % 2
            if events[slot] is not None:
                check(runtime.wait(events[slot]))
            piece = source[start : start + chunk]
            filled = buffers[slot][: piece.numel()]
            runtime.fill(filled, piece)
            check(runtime.copy_async(target[start : start + chunk], filled))
            status, events[slot] = runtime.record()
            check(status)
        check(runtime.synchronize())
    except CudaError:
        runtime.synchronize()  # queued copies still read the buffers
        raise
    finally:
        for buffer in buffers:
            runtime.host_free(buffer)


def copies(runtime, source: torch.Tensor, chunk: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the vector on the device (zeros after an error) and three integers.

    The integers are the status that was raised, the number of buffers that were not freed, and the time divided by the
    time with overlapped copies, rounded. If no call fails, 0, 0 and 1 are correct.
    """
    target = torch.empty_like(source, device=runtime.device)
    status = 0
    try:
        upload(runtime, source, target, chunk)
    except CudaError as error:
        status = error.status
        target.zero_()
    return target, runtime.ledger(status)
