"""Simulated devices, held by the device's process: a submission can call them, but neither read nor change them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import torch

from kernelpath.course.labs import Lab
from kernelpath.course.labs.bus import Copy, Simulated
from kernelpath.course.labs.recorded import NotRecorded, RecordedGpu, TooMuchShared
from kernelpath.course.labs.timer import Device
from kernelpath.course.labs.virtual import Queue
from kernelpath.device import lab_messages as messages
from kernelpath.device.elements import Refused
from kernelpath.device.lab_messages import Went
from kernelpath.device.messages import POISON

TOO_MUCH_SHARED = 1
"""The status of a launch that needs more shared memory than a block may have."""
MOST_BYTES, MOST_CALLS = 64 << 20, 100_000
"""What the targets of copies may have together, and how often a lab may be asked; no honest entry comes near."""

Wrote = Sequence[tuple[int, bytes]]
Asked = messages.Timing | messages.BusCall | messages.RecordedCall


class Served(Protocol):
    """A lab in this process."""

    def answer(self, asked: Asked) -> Went:
        """Raises Refused for what no honest client asks for, and whatever the lab raises."""

    def ended(self, outputs: Sequence[messages.Span]) -> messages.LabEnded: ...


def described(lab: Lab) -> messages.Described:
    """A lab for the wire, as it is before it is used."""
    match lab:
        case Device():
            return messages.Timer(lab.work)
        case Simulated():
            return messages.Bus(lab.fails, lab.status)
        case RecordedGpu():
            return messages.Recorded(lab.requests)
    raise TypeError(f"{type(lab).__name__} cannot be in the device's process")


def serve(told: messages.Described) -> Served:
    """The lab that is described, new."""
    match told:
        case messages.Timer():
            return ServedTimer(told)
        case messages.Bus():
            return ServedBus(told)
        case messages.Recorded():
            return ServedGpu(told)


class ServedTimer:
    """The device that a timer is tried on."""

    def __init__(self, told: messages.Timer) -> None:
        self._device = Device(told.work)
        self._asked = 0

    def answer(self, asked: Asked) -> Went:
        self._asked = _counted(self._asked)
        if not isinstance(asked, messages.Timing):
            raise Refused("a timer is not a bus")
        match asked.what:
            case "launch":
                self._device()
                return Went()
            case "clock":
                return Went(values=[self._device.clock()])
            case "sleep":
                self._device.sleep(_moment(asked.seconds))
                return Went()
        return Went(values=[_of_queue(self._device, asked)])

    def ended(self, outputs: Sequence[messages.Span]) -> messages.LabEnded:
        return messages.LabEnded([None for _ in outputs], None, None)


class ServedBus:
    """The bus, the bytes of the host's pinned buffers as far as they were told, and the memory of the device."""

    def __init__(self, told: messages.Bus) -> None:
        self._bus = Simulated("cpu", told.fails, told.status)
        self._asked = 0
        self._buffers: dict[int, torch.Tensor] = {}
        self._memory: dict[int, torch.Tensor] = {}
        self._in_flight: list[tuple[int, Copy]] = []

    def answer(self, asked: Asked) -> Went:
        self._asked = _counted(self._asked)
        if isinstance(asked, messages.RecordedCall):
            raise Refused("a bus launches nothing")
        line = asked.line if isinstance(asked, messages.BusCall) else 0
        changed = self._take(asked.wrote, line)
        if isinstance(asked, messages.Fill) and not 0 <= asked.nbytes <= MOST_BYTES:
            raise Refused(f"{asked.nbytes} bytes were copied")
        self._bus.host_copies(max(changed, asked.nbytes if isinstance(asked, messages.Fill) else 0))
        calls = self._bus.spent.calls
        before = len(calls)
        went = self._went(asked)
        self._bus.spent.lines += [line] * (len(calls) - before)
        return self._done(went)

    def ended(self, outputs: Sequence[messages.Span]) -> messages.LabEnded:
        return messages.LabEnded([self._held(output) for output in outputs], self._bus.spent, None)

    def _went(self, asked: messages.Timing | messages.BusCall) -> Went:
        match asked:
            case messages.HostAlloc(count=count):
                return self._host_alloc(count)
            case messages.HostFree(buffer=buffer):
                if buffer not in self._buffers:
                    raise Refused(f"there is no buffer {buffer}")
                return Went(self._bus.host_free(self._buffers.pop(buffer)))
            case messages.CopyAsync():
                return self._copy_async(asked)
            case messages.Record():
                status, moment = self._bus.record()
                return Went(status, [] if status else [moment])
            case messages.Wait(moment=moment):
                return Went(self._bus.wait(_moment(moment)))
            case messages.Synchronize():
                return Went(self._bus.synchronize())
            case messages.AskLedger(status=status):
                return Went(values=self._bus.ledger(status).tolist())
            case messages.Timing(what="queue_reached" | "wait_until" | "has_passed"):
                return Went(values=[_of_queue(self._bus, asked)])
            case messages.Timing():
                raise Refused("a bus is not a timer")
            case messages.Fill():
                return Went()  # the host has copied, and nothing else happens
        raise Refused(f"{type(asked).__name__} is not a call")

    def _host_alloc(self, count: int) -> Went:
        status, buffer = self._bus.host_alloc(count)
        if buffer is None:
            return Went(status)
        number = self._asked
        self._buffers[number] = buffer
        buffer.view(torch.int16).fill_(POISON)
        return Went(status, [number])

    def _copy_async(self, asked: messages.CopyAsync) -> Went:
        target = self._span(self._stored(asked), asked.target.offset, asked.nbytes)
        if isinstance(asked.source, bytes):
            source = _tensor(asked.source, asked.nbytes)
        elif asked.source.storage in self._buffers:
            buffer = self._buffers[asked.source.storage].view(torch.uint8)
            source = self._span(buffer, asked.source.offset, asked.nbytes)
        else:
            raise Refused(f"there is no buffer {asked.source.storage}")
        waiting = len(self._bus.queue)
        status = self._bus.copy_async(target, source)
        if len(self._bus.queue) > waiting:
            self._in_flight.append((asked.number, self._bus.queue[-1]))
        elif not status:
            return Went(status, copied=[(asked.number, _bytes(target))])
        return Went(status)

    def _done(self, went: Went) -> Went:
        """The answer, with the copies that are no longer in the queue."""
        waiting = {id(copy) for copy in self._bus.queue}
        done = [(number, _bytes(copy.target)) for number, copy in self._in_flight if id(copy) not in waiting]
        self._in_flight = [one for one in self._in_flight if id(one[1]) in waiting]
        return Went(went.status, went.values, [*went.copied, *done])

    def _take(self, wrote: Wrote, line: int) -> int:
        """What the host has written into its buffers: how many bytes are others now."""
        waiting = [(copy.source, copy.source.clone()) for copy in self._bus.queue] if wrote else []
        changed = 0
        for number, content in wrote:
            if number not in self._buffers:
                raise Refused(f"there is no buffer {number}")
            words = self._buffers[number].view(torch.int32)
            new = _tensor(content, 4 * words.numel()).view(torch.int32)
            changed += 4 * int((words != new).sum())
            words.copy_(new)
        if any(not torch.equal(now, before) for now, before in waiting):
            self._bus.spent.refilled_early += 1
            self._bus.spent.refilled_line = self._bus.spent.refilled_line or line
        return changed

    def _stored(self, asked: messages.CopyAsync) -> torch.Tensor:
        """The memory of the device that a copy goes to, poisoned at first."""
        number, nbytes = asked.target.storage, asked.target_nbytes
        stored = self._memory.get(number)
        if stored is None or stored.numel() != nbytes:
            taken = sum(one.numel() for one in self._memory.values())
            if not 0 <= nbytes <= MOST_BYTES - taken:
                raise Refused(f"a target of {nbytes:,} bytes")
            halves = torch.full((nbytes // 2 + 1,), POISON, dtype=torch.int16)
            stored = self._memory[number] = halves.view(torch.uint8)[:nbytes]
        return stored

    def _held(self, output: messages.Span) -> bytes | None:
        stored = self._memory.get(output.storage)
        return None if stored is None else _bytes(self._span(stored, output.offset, output.nbytes))

    @staticmethod
    def _span(memory: torch.Tensor, offset: int, nbytes: int) -> torch.Tensor:
        if not (min(offset, nbytes) >= 0 and offset + nbytes <= memory.numel()):
            raise Refused(f"{nbytes} bytes at {offset} of {memory.numel()}")
        return memory[offset : offset + nbytes]


class ServedGpu:
    """The GPU that answers with recorded times."""

    def __init__(self, told: messages.Recorded) -> None:
        self._gpu = RecordedGpu("cpu", told.requests)
        self._asked = 0

    def answer(self, asked: Asked) -> Went:
        self._asked = _counted(self._asked)
        try:
            return self._went(asked)
        except TooMuchShared as needed:
            return Went(TOO_MUCH_SHARED, [float(needed.args[0])])
        except NotRecorded as refused:
            raise ValueError(str(refused)) from None
        except KeyError as unknown:
            raise Refused(f"there is no matrix {unknown}") from None

    def ended(self, outputs: Sequence[messages.Span]) -> messages.LabEnded:
        return messages.LabEnded([None for _ in outputs], None, None, self._gpu.ended())

    def _went(self, asked: Asked) -> Went:
        match asked:
            case messages.Requests():
                sizes = self._gpu.requests
                return Went(values=[x for one in sizes for x in (int(one.dtype[-2:]), one.M, one.N, one.K)])
            case messages.LaunchRecorded():
                self._gpu.launch(asked.operands, asked.sizes, asked.configuration, asked.grid)
                return Went()
            case messages.Bench(begins=begins):
                return Went(values=[self._gpu.bench(begins)])
            case messages.Move(what="zero"):
                self._gpu.zero(asked.matrix)
                return Went()
            case messages.Move(what="clone"):
                return Went(values=[self._gpu.clone(asked.matrix)])
            case messages.Move():
                self._gpu.copy(asked.target, asked.matrix)
                return Went()
            case messages.AskSpent():
                return Went(values=self._gpu.ended().ledger)
        raise Refused(f"{type(asked).__name__} is not a call")


def _of_queue(queue: Queue, asked: messages.Timing) -> float:
    match asked.what:
        case "queue_reached":
            return queue.queue_reached()
        case "has_passed":
            return float(queue.has_passed(asked.seconds))
    queue.wait_until(_moment(asked.seconds))
    return 0.0


def _counted(asked: int) -> int:
    if asked == MOST_CALLS:
        raise Refused(f"a simulated device was asked more than {MOST_CALLS:,} times")
    return asked + 1


def _moment(seconds: float) -> float:
    """Raises Refused for a time that cannot be waited for."""
    if not (math.isfinite(seconds) and 0 <= seconds <= 1e9):
        raise Refused(f"{seconds} s cannot be waited for")
    return seconds


def _tensor(content: bytes, nbytes: int) -> torch.Tensor:
    if len(content) != nbytes:
        raise Refused(f"{len(content)} bytes where there should be {nbytes}")
    return torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else torch.empty(0, dtype=torch.uint8)


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.numpy().tobytes()
