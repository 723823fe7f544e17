"""Simulated devices as a submission gets them: every call is a message to the process that has the device."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from msgspec import structs
from torch.cuda import synchronize as wait_for_the_gpu

from kernelpath.course.labs import Lab
from kernelpath.course.labs.timer import Timed
from kernelpath.course.labs.virtual import Queue
from kernelpath.device import lab_messages as messages
from kernelpath.device.lab_messages import LabResponse
from kernelpath.device.lab_tuning import Gpu
from kernelpath.device.messages import POISON, LabPart, Message, Pointer, TensorRef

Ask = Callable[[Message], LabResponse]
Place = Callable[[torch.Tensor], TensorRef]


def of(told: LabPart, ask: Ask, place: Place) -> Lab:
    """The proxy of the lab that a case has. ask: a call of it. place: where a tensor lies, by numbers."""
    match told.lab:
        case "timer":
            return Timer(ask)
        case "bus":
            return Bus(told.device, ask, place)
        case "recorded":
            return Gpu(told.device, ask)


class Timer(Timed):
    """A device to be timed, and the clock beside it."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def __call__(self) -> None:
        try:
            self._ask(messages.Timing("launch"))
        except ValueError as refused:
            raise RuntimeError(str(refused)) from None

    def clock(self) -> float:
        return self._ask(messages.Timing("clock")).values[0]

    def sleep(self, seconds: float) -> None:
        self._ask(messages.Timing("sleep", float(seconds)))

    def queue_reached(self) -> float:
        return self._ask(messages.Timing("queue_reached")).values[0]

    def wait_until(self, moment: float) -> None:
        self._ask(messages.Timing("wait_until", moment))

    def has_passed(self, moment: float) -> bool:
        return bool(self._ask(messages.Timing("has_passed", moment)).values[0])


@dataclass
class _Buffer:
    """A pinned buffer. told: the bytes that the bus knows it by."""

    number: int
    memory: torch.Tensor
    told: bytes


class Bus(Queue):
    """bus.Runtime for a submission. The memory of the device is the bus's own; a target here shows what was copied."""

    def __init__(self, device: str, ask: Ask, place: Place) -> None:
        self.device = device
        self._ask, self._place = ask, place
        self._buffers: list[_Buffer] = []
        self._targets: dict[int, torch.Tensor] = {}
        self._copies = 0

    def host_alloc(self, count: int) -> tuple[int, torch.Tensor | None]:
        """As Runtime.host_alloc."""
        went = self._call(messages.HostAlloc(count=operator.index(count), wrote=self._wrote()))
        if went.status:
            return went.status, None
        buffer = torch.empty(count)
        buffer.view(torch.int16).fill_(POISON)
        self._buffers.append(_Buffer(int(went.values[0]), buffer, _bytes(buffer)))
        return 0, buffer

    def host_free(self, buffer: torch.Tensor) -> int:
        """As Runtime.host_free."""
        freed = next((one for one in self._buffers if one.memory.data_ptr() == buffer.data_ptr()), None)
        if freed is None:
            raise ValueError("host_free got memory that host_alloc did not return, or that was already freed")
        went = self._call(messages.HostFree(buffer=freed.number, wrote=self._wrote()))
        self._buffers.remove(freed)
        return went.status

    def fill(self, buffer: torch.Tensor, source: torch.Tensor) -> None:
        """As Runtime.fill."""
        buffer.copy_(source)
        self._call(messages.Fill(nbytes=source.nbytes, wrote=self._wrote()))

    def copy_async(self, target: torch.Tensor, source: torch.Tensor) -> int:
        """As Runtime.copy_async. Raises ValueError for tensors that are not alike, or have gaps."""
        if (target.dtype, target.shape) != (source.dtype, source.shape):
            raise ValueError(f"a copy of {tuple(source.shape)} {source.dtype} to {tuple(target.shape)} {target.dtype}")
        if not (target.is_contiguous() and source.is_contiguous()):
            raise ValueError("copy_async needs tensors that are contiguous in memory")
        self._copies += 1
        self._targets[self._copies] = target
        place = self._place(target)
        asked = messages.CopyAsync(
            number=self._copies,
            target=Pointer(place.storage, place.offset * target.element_size()),
            target_nbytes=target.untyped_storage().nbytes(),
            source=self._source(source),
            nbytes=source.nbytes,
            wrote=self._wrote(),
        )
        return self._call(asked).status

    def record(self) -> tuple[int, Any]:
        """As Runtime.record."""
        went = self._call(messages.Record(wrote=self._wrote()))
        return (went.status, None) if went.status else (0, went.values[0])

    def wait(self, event: Any) -> int:
        """As Runtime.wait. Raises TypeError for what `record` did not give."""
        if not isinstance(event, float):
            raise TypeError(f"wait takes an event of record(), got {type(event).__name__}")
        return self._call(messages.Wait(moment=event, wrote=self._wrote(waits=True))).status

    def synchronize(self) -> int:
        """As Runtime.synchronize."""
        return self._call(messages.Synchronize(wrote=self._wrote(waits=True))).status

    def ledger(self, status: int) -> torch.Tensor:
        """As Runtime.ledger."""
        went = self._call(messages.GetLedger(status=operator.index(status), wrote=self._wrote()))
        return torch.tensor([int(value) for value in went.values], device=self.device)

    def queue_reached(self) -> float:
        return self._call(messages.Timing("queue_reached", wrote=self._wrote())).values[0]

    def wait_until(self, moment: float) -> None:
        self._call(messages.Timing("wait_until", moment, self._wrote(waits=True)))

    def has_passed(self, moment: float) -> bool:
        return bool(self._call(messages.Timing("has_passed", moment, self._wrote())).values[0])

    def _call(self, asked: Message) -> LabResponse:
        if isinstance(asked, messages.BusCall):
            asked = structs.replace(asked, line=_line())
        went = self._ask(asked)
        for number, content in went.copied:
            target = self._targets.pop(number)
            if content:
                target.copy_(torch.frombuffer(bytearray(content), dtype=target.dtype).view(target.shape))
        return went

    def _wrote(self, waits: bool = False) -> list[tuple[int, bytes]]:
        """What the host has changed. waits: then the GPU has done what a submission had it copy out of its memory."""
        if waits and self.device == "cuda":
            wait_for_the_gpu()
        now = [(one, _bytes(one.memory)) for one in self._buffers]
        changed = [(one, content) for one, content in now if content != one.told]
        for one, content in changed:
            one.told = content
        return [(one.number, content) for one, content in changed]

    def _source(self, source: torch.Tensor) -> Pointer | bytes:
        for one in self._buffers:
            offset = source.data_ptr() - one.memory.data_ptr()
            if 0 <= offset <= one.memory.nbytes - source.nbytes:
                return Pointer(one.number, offset)
        return _bytes(source)


def _line() -> int:
    """The line that called a lab."""
    frame = sys._getframe()
    while frame.f_code.co_filename == __file__ and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_lineno


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.detach().numpy().tobytes()
