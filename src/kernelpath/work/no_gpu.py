"""What torch.cuda means where kernels run on the PTX machine: a GPU that has always finished.

Launches are over when they return, so there is nothing to wait for, all streams are one, and every device is the one
that there is; its properties are shown by device.gpu. torch.cuda.is_available() stays False, and no tensor is on a GPU.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import torch

from kernelpath.course.labs.virtual import Event, Queue, Stream


class _Done(Queue):
    """A queue that is always empty, in the host's time."""

    def queue_reached(self) -> float:
        return time.perf_counter()

    def wait_until(self, moment: float) -> None:
        pass

    def has_passed(self, moment: float) -> bool:
        return True


_QUEUE = _Done()


class CurrentStream(Stream):
    """The one stream. As a context manager it changes nothing."""

    cuda_stream = 0
    """The default stream's handle."""

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__(_QUEUE)

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


class CompletedEvent(Event):
    """An event that has happened once it is recorded."""

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__(_QUEUE)


class AnyDevice(contextlib.nullcontext[None]):
    """torch.cuda.device(x.device), whatever that is."""

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__()


def patch_torch_cuda() -> None:
    """Let what torch.cuda offers to wait, to time, and to choose a device with do so without a GPU."""
    for name, replacement in _REPLACED.items():
        setattr(torch.cuda, name, replacement)


def _gives(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


_REPLACED: dict[str, Any] = {
    "synchronize": _gives(None),
    "set_device": _gives(None),
    "set_stream": _gives(None),
    "current_stream": CurrentStream,
    "default_stream": CurrentStream,
    "Stream": CurrentStream,
    "stream": contextlib.nullcontext,
    "Event": CompletedEvent,
    "device": AnyDevice,
    "device_of": AnyDevice,
}
