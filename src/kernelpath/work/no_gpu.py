"""Replace torch.cuda where kernels run on the PTX machine, by a GPU that has always finished.

A launch is complete when it returns. So there is nothing to wait for, all streams are the same stream, and every device
is the same device; device.gpu provides its properties. torch.cuda.is_available() stays False, and no tensor is on a
GPU.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import torch

from kernelpath.course.labs.virtual import Event, Queue, Stream


class _Done(Queue):
    """A queue that is always empty, on the host's clock."""

    def queue_reached(self) -> float:
        return time.perf_counter()

    def wait_until(self, moment: float) -> None:
        pass

    def has_passed(self, moment: float) -> bool:
        return True


_QUEUE = _Done()


class CurrentStream(Stream):
    """The only stream. Entering it as a context manager changes nothing."""

    # The default stream's handle.
    cuda_stream = 0

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__(_QUEUE)

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


class CompletedEvent(Event):
    """An event that has happened as soon as it is recorded."""

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__(_QUEUE)


class AnyDevice(contextlib.nullcontext[None]):
    """The context manager torch.cuda.device(x.device), for any x."""

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__()


def patch_torch_cuda() -> None:
    """Replace the functions of torch.cuda that wait, take times or choose a device by functions that need no GPU."""
    for name, replacement in _REPLACEMENTS.items():
        setattr(torch.cuda, name, replacement)


def _constant(value: Any) -> Callable[..., Any]:
    """Return a function that ignores its arguments and returns `value`."""
    return lambda *_, **__: value


_REPLACEMENTS: dict[str, Any] = {
    "synchronize": _constant(None),
    "set_device": _constant(None),
    "set_stream": _constant(None),
    "current_stream": CurrentStream,
    "default_stream": CurrentStream,
    "Stream": CurrentStream,
    "stream": contextlib.nullcontext,
    "Event": CompletedEvent,
    "device": AnyDevice,
    "device_of": AnyDevice,
}
