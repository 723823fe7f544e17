"""Everything happens on a stream of the submission's own, and pieces are staged in pinned memory of PyTorch's."""

import torch


class CudaError(Exception):
    """A call failed. Its status says why: 2 is out of memory, 719 a kernel that went wrong some time before."""

    def __init__(self, status: int) -> None:
        super().__init__(f"CUDA error {status}")
        self.status = status


def check(status: int) -> None:
    """Raise CudaError unless the status is 0."""
    if status != 0:
        raise CudaError(status)


def upload(runtime, source: torch.Tensor, target: torch.Tensor, chunk: int) -> None:
    """Copy source (float32, on the host) to target (as long, on the device). Raises CudaError."""
    buffers = []
    cuda = target.device.type == "cuda"
    staging = torch.empty(min(chunk, source.numel()), pin_memory=cuda)
    assert staging.is_pinned() == cuda
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
            staging[: piece.numel()].copy_(piece)
            runtime.fill(filled, staging[: piece.numel()])
            check(runtime.copy_async(target[start : start + chunk], filled))
            status, events[slot] = runtime.record()
            check(status)
        check(runtime.synchronize())
    except CudaError:
        torch.cuda.synchronize() if cuda else runtime.synchronize()
        raise
    finally:
        for buffer in buffers:
            runtime.host_free(buffer)


def copies(runtime, source: torch.Tensor, chunk: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The vector on the device (zeros after an error), and three integers.

    They are the status that was raised, the buffers that were not given back, and how many times as long as with
    overlapped copies it took, rounded: 0, 0 and 1 are right if no call fails.
    """
    target = torch.empty_like(source, device=runtime.device)
    status = 0
    try:
        if target.device.type == "cuda":
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                upload(runtime, source, target, chunk)
            stream.synchronize()
        else:
            upload(runtime, source, target, chunk)
    except CudaError as error:
        status = error.status
        target.zero_()
    return target, runtime.ledger(status)
