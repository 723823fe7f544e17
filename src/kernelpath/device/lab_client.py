"""Provide proxies of simulated devices to a submission. Every call is a message to the process of the device."""

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
from kernelpath.device.lab_tuning import GpuProxy
from kernelpath.device.messages import POISON, LabPart, Message, Pointer, TensorRef

Send = Callable[[Message], LabResponse]
MakeRef = Callable[[torch.Tensor], TensorRef]


def create_proxy(part: LabPart, send: Send, ref: MakeRef) -> Lab:
    """Return the proxy of a case's simulated device.

    Args:
        part: The description of the device.
        send: Sends a call and returns the response.
        ref: Returns the reference to a tensor.
    """
    match part.lab:
        case "timer":
            return TimerProxy(send)
        case "bus":
            return BusProxy(part.device, send, ref)
        case "recorded":
            return GpuProxy(part.device, send)
        case "ci_machine":
            return CiMachineProxy(send)


class TimerProxy(Timed):
    """A proxy of the device that a timer measures, with its clock."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def __call__(self) -> None:
        try:
            # Every call is a message: the state of the device is in another process, out of the submission's reach.
            self._send(messages.Timing("launch"))
        except ValueError as refused:
            raise RuntimeError(str(refused)) from None

    def clock(self) -> float:
        return self._send(messages.Timing("clock")).values[0]

    def sleep(self, seconds: float) -> None:
        self._send(messages.Timing("sleep", float(seconds)))

    def queue_reached(self) -> float:
        return self._send(messages.Timing("queue_reached")).values[0]

    def wait_until(self, moment: float) -> None:
        self._send(messages.Timing("wait_until", moment))

    def has_passed(self, moment: float) -> bool:
        return bool(self._send(messages.Timing("has_passed", moment)).values[0])


class CiMachineProxy(Lab):
    """A proxy of ci_machine.CiMachine."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def __call__(self, change: int, order: str) -> list[float]:
        response = self._send(messages.TimeVersions(change=operator.index(change), order=order))
        return list(response.values)


@dataclass
class PinnedBuffer:
    """A pinned buffer.

    Attributes:
        sent: The bytes of the last call, which the simulated bus has.
    """

    number: int
    memory: torch.Tensor
    sent: bytes


class BusProxy(Queue):
    """A proxy of bus.Runtime. The simulated bus owns the device's memory; completed copies also update targets here."""

    def __init__(self, device: str, send: Send, ref: MakeRef) -> None:
        self.device = device
        self._send = send
        self._ref = ref
        self._buffers: list[PinnedBuffer] = []
        self._targets: dict[int, torch.Tensor] = {}
        self._copies = 0

    def host_alloc(self, count: int) -> tuple[int, torch.Tensor | None]:
        """Call Runtime.host_alloc of the simulated bus."""
        response = self._call(messages.HostAlloc(count=operator.index(count), wrote=self._host_writes()))
        if response.status:
            return response.status, None
        # The simulated bus fills its copy with the same poison, so both ends have equal bytes.
        buffer = torch.empty(count)
        buffer.view(torch.int16).fill_(POISON)
        self._buffers.append(PinnedBuffer(int(response.values[0]), buffer, _bytes(buffer)))
        return 0, buffer

    def host_free(self, buffer: torch.Tensor) -> int:
        """Call Runtime.host_free of the simulated bus."""
        freed = next(
            (candidate for candidate in self._buffers if candidate.memory.data_ptr() == buffer.data_ptr()), None
        )
        if freed is None:
            raise ValueError("host_free got memory that host_alloc did not return, or that was already freed")
        response = self._call(messages.HostFree(buffer=freed.number, wrote=self._host_writes()))
        self._buffers.remove(freed)
        return response.status

    def fill(self, buffer: torch.Tensor, source: torch.Tensor) -> None:
        """Call Runtime.fill of the simulated bus."""
        buffer.copy_(source)
        self._call(messages.Fill(nbytes=source.nbytes, wrote=self._host_writes()))

    def copy_async(self, target: torch.Tensor, source: torch.Tensor) -> int:
        """Call Runtime.copy_async of the simulated bus.

        Raises:
            ValueError: The tensors differ in shape or dtype, or are not contiguous.
        """
        if (target.dtype, target.shape) != (source.dtype, source.shape):
            raise ValueError(f"a copy of {tuple(source.shape)} {source.dtype} to {tuple(target.shape)} {target.dtype}")
        if not (target.is_contiguous() and source.is_contiguous()):
            raise ValueError("copy_async needs tensors that are contiguous in memory")
        self._copies += 1
        # The target is kept until its bytes arrive: a copy completes during a later call, whose response has them.
        self._targets[self._copies] = target
        target_ref = self._ref(target)
        request = messages.CopyAsync(
            number=self._copies,
            target=Pointer(target_ref.storage, target_ref.offset * target.element_size()),
            target_nbytes=target.untyped_storage().nbytes(),
            source=self._source(source),
            nbytes=source.nbytes,
            wrote=self._host_writes(),
        )
        return self._call(request).status

    def record(self) -> tuple[int, Any]:
        """Call Runtime.record of the simulated bus."""
        response = self._call(messages.RecordEvent(wrote=self._host_writes()))
        return (response.status, None) if response.status else (0, response.values[0])

    def wait(self, event: Any) -> int:
        """Call Runtime.wait of the simulated bus.

        Raises:
            TypeError: The argument is not an event of `record`.
        """
        if not isinstance(event, float):
            raise TypeError(f"wait takes an event of record(), got {type(event).__name__}")
        return self._call(messages.Wait(moment=event, wrote=self._host_writes(waits=True))).status

    def synchronize(self) -> int:
        """Call Runtime.synchronize of the simulated bus."""
        return self._call(messages.Synchronize(wrote=self._host_writes(waits=True))).status

    def ledger(self, status: int) -> torch.Tensor:
        """Call Runtime.ledger of the simulated bus."""
        response = self._call(messages.GetLedger(status=operator.index(status), wrote=self._host_writes()))
        return torch.tensor([int(value) for value in response.values], device=self.device)

    def queue_reached(self) -> float:
        return self._call(messages.Timing("queue_reached", wrote=self._host_writes())).values[0]

    def wait_until(self, moment: float) -> None:
        self._call(messages.Timing("wait_until", moment, self._host_writes(waits=True)))

    def has_passed(self, moment: float) -> bool:
        return bool(self._call(messages.Timing("has_passed", moment, self._host_writes())).values[0])

    def _call(self, request: Message) -> LabResponse:
        if isinstance(request, messages.BusCall):
            request = structs.replace(request, line=_line())
        response = self._send(request)
        for number, content in response.copied:
            target = self._targets.pop(number)
            if content:
                # torch.frombuffer refuses an empty buffer.
                target.copy_(torch.frombuffer(bytearray(content), dtype=target.dtype).view(target.shape))
        return response

    def _host_writes(self, waits: bool = False) -> list[tuple[int, bytes]]:
        """Return the buffers that the host changed since the last call, with their bytes.

        Args:
            waits: Whether the call waits. On a GPU, the GPU's own copies into the buffers must have completed by then.
        """
        if waits and self.device == "cuda":
            wait_for_the_gpu()
        contents = [(buffer, _bytes(buffer.memory)) for buffer in self._buffers]
        # Only changes are sent. The bus needs the bytes that a buffer has when a copy reads it, not only when it was
        # filled.
        changed = [(buffer, content) for buffer, content in contents if content != buffer.sent]
        for buffer, content in changed:
            buffer.sent = content
        return [(buffer.number, content) for buffer, content in changed]

    def _source(self, source: torch.Tensor) -> Pointer | bytes:
        for buffer in self._buffers:
            # A part of a pinned buffer is pinned as well.
            offset = source.data_ptr() - buffer.memory.data_ptr()
            if 0 <= offset <= buffer.memory.nbytes - source.nbytes:
                return Pointer(buffer.number, offset)
        # The source is pageable memory, of which the simulated bus has no copy.
        return _bytes(source)


def _line() -> int:
    """Return the submission's line that called the proxy."""
    frame = sys._getframe()
    # Frames of this module lie between the call and the submission.
    while frame.f_code.co_filename == __file__ and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_lineno


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.detach().numpy().tobytes()
