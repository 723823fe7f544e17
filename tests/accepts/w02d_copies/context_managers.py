"""Pinned buffers as context managers on an exit stack, and a decorator that turns statuses into exceptions."""

import contextlib
import functools
import itertools

import torch


class CudaError(RuntimeError):
    def __init__(self, status):
        super().__init__(status)
        self.status = status


class Checked:
    """Every call of the runtime, with its status checked and taken off."""

    def __init__(self, runtime):
        self._runtime = runtime

    def __getattr__(self, name):
        call = getattr(self._runtime, name)

        @functools.wraps(call)
        def checked(*args):
            status, *rest = result if isinstance(result := call(*args), tuple) else (result,)
            if status:
                raise CudaError(status)
            return rest[0] if rest else None

        return checked

    @contextlib.contextmanager
    def pinned(self, count):
        buffer = self.host_alloc(count)
        try:
            yield buffer
        finally:
            self._runtime.host_free(buffer)


def upload(runtime, source, target, chunk):
    cuda = Checked(runtime)
    with contextlib.ExitStack() as stack:
        slots = [(stack.enter_context(cuda.pinned(min(chunk, source.numel()))), []) for _ in range(2)]
        stack.callback(cuda.synchronize)
        for (buffer, pending), (piece, place) in zip(
            itertools.cycle(slots), zip(source.split(chunk), target.split(chunk), strict=True), strict=False
        ):
            if pending:
                cuda.wait(pending.pop())
            runtime.fill(buffer[: len(piece)], piece)
            cuda.copy_async(place, buffer[: len(piece)])
            pending.append(cuda.record())


def copies(runtime, source, chunk):
    target, status = torch.empty_like(source, device=runtime.device), 0
    try:
        upload(runtime, source, target, chunk)
    except CudaError as error:
        status = error.status
        target.zero_()
    return target, runtime.ledger(status)
