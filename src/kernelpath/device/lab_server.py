"""Run simulated devices in the device's process: a submission can call them, but cannot read or change their state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import torch

from kernelpath.course.labs import Lab
from kernelpath.course.labs.bus import Copy, SimulatedRuntime
from kernelpath.course.labs.ci_machine import CiMachine
from kernelpath.course.labs.recorded import NotRecorded, RecordedGpu, TooMuchShared
from kernelpath.course.labs.timer import Device
from kernelpath.course.labs.virtual import Queue
from kernelpath.device import lab_messages as messages
from kernelpath.device.elements import InvalidRequest
from kernelpath.device.lab_messages import LabResponse
from kernelpath.device.messages import POISON

# The status of a launch that needs more shared memory than a block may have.
TOO_MUCH_SHARED = 1

# The limit of the total size of copy targets. An honest entry stays far below it.
MAX_TARGET_BYTES = 64 << 20

# The limit of calls of a simulated device. An honest entry stays far below it.
MAX_CALLS = 100_000

HostWrites = Sequence[tuple[int, bytes]]
LabRequest = messages.Timing | messages.BusCall | messages.RecordedCall | messages.TimeVersions


class SimulatedDevice(Protocol):
    """A simulated device in this process, called through messages."""

    def respond(self, request: LabRequest) -> LabResponse:
        """Return the response to a call.

        Raises:
            InvalidRequest: An honest client does not make this call.
        """

    def report(self, outputs: Sequence[messages.ByteRange]) -> messages.LabReport:
        """Return the report on all calls, with the bytes of the outputs in the device's memory."""
        ...


def describe(lab: Lab) -> messages.DeviceDescription:
    """Return the description of an unused simulated device for the wire."""
    match lab:
        case Device():
            return messages.TimerDescription(lab.work)
        case SimulatedRuntime():
            return messages.BusDescription(lab.fails, lab.status)
        case RecordedGpu():
            return messages.RecordedGpuDescription(lab.requests)
        case CiMachine():
            return messages.CiMachineDescription(lab.seed, lab.changes)
    raise TypeError(f"{type(lab).__name__} cannot be in the device's process")


def create_device(description: messages.DeviceDescription) -> SimulatedDevice:
    """Return a new simulated device of this description."""
    match description:
        case messages.TimerDescription():
            return SimulatedTimer(description)
        case messages.BusDescription():
            return SimulatedBus(description)
        case messages.RecordedGpuDescription():
            return SimulatedGpu(description)
        case messages.CiMachineDescription():
            return SimulatedCiMachine(description)


class SimulatedTimer:
    """The device that a learner's timer measures."""

    def __init__(self, description: messages.TimerDescription) -> None:
        self._device = Device(description.work)
        self._calls = 0

    def respond(self, request: LabRequest) -> LabResponse:
        self._calls = _count_call(self._calls)
        if not isinstance(request, messages.Timing):
            raise InvalidRequest("a timer is not a bus")
        match request.what:
            case "launch":
                self._device()
                return LabResponse()
            case "clock":
                return LabResponse(values=[self._device.clock()])
            case "sleep":
                self._device.sleep(_moment(request.seconds))
                return LabResponse()
        return LabResponse(values=[_query_queue(self._device, request)])

    def report(self, outputs: Sequence[messages.ByteRange]) -> messages.LabReport:
        return messages.LabReport([None for _ in outputs], None, None)


class SimulatedBus:
    """The bus, the memory of the device, and copies of the host's pinned buffers, which each call updates."""

    def __init__(self, description: messages.BusDescription) -> None:
        self._bus = SimulatedRuntime("cpu", description.fails, description.status)
        self._calls = 0
        self._buffers: dict[int, torch.Tensor] = {}
        self._memory: dict[int, torch.Tensor] = {}
        self._in_flight: list[tuple[int, Copy]] = []

    def respond(self, request: LabRequest) -> LabResponse:
        self._calls = _count_call(self._calls)
        if not isinstance(request, messages.Timing | messages.BusCall):
            raise InvalidRequest("a bus launches nothing")
        line = request.line if isinstance(request, messages.BusCall) else 0
        # The host wrote before it made this call.
        changed = self._apply_host_writes(request.wrote, line)
        if isinstance(request, messages.Fill) and not 0 <= request.nbytes <= MAX_TARGET_BYTES:
            raise InvalidRequest(f"{request.nbytes} bytes were copied")
        # The host's own copies take virtual time even where they bypass Runtime.fill. Otherwise the clock would stand
        # still while the host copies in turns with the bus.
        self._bus.host_copies(max(changed, request.nbytes if isinstance(request, messages.Fill) else 0))
        calls = self._bus.spent.calls
        before = len(calls)
        response = self._dispatch(request)
        # One message may be several calls in the ledger, all of them from one line.
        self._bus.spent.lines += [line] * (len(calls) - before)
        return self._add_completed_copies(response)

    def report(self, outputs: Sequence[messages.ByteRange]) -> messages.LabReport:
        return messages.LabReport([self._output_content(output) for output in outputs], self._bus.spent, None)

    def _dispatch(self, request: messages.Timing | messages.BusCall) -> LabResponse:
        match request:
            case messages.HostAlloc(count=count):
                return self._host_alloc(count)
            case messages.HostFree(buffer=buffer):
                if buffer not in self._buffers:
                    raise InvalidRequest(f"there is no buffer {buffer}")
                return LabResponse(self._bus.host_free(self._buffers.pop(buffer)))
            case messages.CopyAsync():
                return self._copy_async(request)
            case messages.RecordEvent():
                status, moment = self._bus.record()
                return LabResponse(status, [] if status else [moment])
            case messages.Wait(moment=moment):
                return LabResponse(self._bus.wait(_moment(moment)))
            case messages.Synchronize():
                return LabResponse(self._bus.synchronize())
            case messages.GetLedger(status=status):
                return LabResponse(values=self._bus.ledger(status).tolist())
            case messages.Timing(what="queue_reached" | "wait_until" | "has_passed"):
                return LabResponse(values=[_query_queue(self._bus, request)])
            case messages.Timing():
                raise InvalidRequest("a bus is not a timer")
            case messages.Fill():
                return LabResponse()  # respond has already accounted the host's copy
        raise InvalidRequest(f"{type(request).__name__} is not a call")

    def _host_alloc(self, count: int) -> LabResponse:
        status, buffer = self._bus.host_alloc(count)
        if buffer is None:
            return LabResponse(status)
        # No call has the number of an earlier call, so the number of a freed buffer never names another buffer.
        number = self._calls
        self._buffers[number] = buffer
        buffer.view(torch.int16).fill_(POISON)
        return LabResponse(status, [number])

    def _copy_async(self, request: messages.CopyAsync) -> LabResponse:
        target = self._span(self._stored(request), request.target.offset, request.nbytes)
        if isinstance(request.source, bytes):
            source = _tensor(request.source, request.nbytes)
        elif request.source.storage in self._buffers:
            buffer = self._buffers[request.source.storage].view(torch.uint8)
            source = self._span(buffer, request.source.offset, request.nbytes)
        else:
            raise InvalidRequest(f"there is no buffer {request.source.storage}")
        waiting = len(self._bus.queue)
        status = self._bus.copy_async(target, source)
        # A copy from pageable memory is complete at once, and a failed copy never begins: neither is in the queue.
        if len(self._bus.queue) > waiting:
            self._in_flight.append((request.number, self._bus.queue[-1]))
        elif not status:
            return LabResponse(status, copied=[(request.number, _bytes(target))])
        return LabResponse(status)

    def _add_completed_copies(self, response: LabResponse) -> LabResponse:
        """Return the response with the copies that have left the queue since the last call."""
        waiting = {id(copy) for copy in self._bus.queue}
        done = [(number, _bytes(copy.target)) for number, copy in self._in_flight if id(copy) not in waiting]
        self._in_flight = [(number, copy) for number, copy in self._in_flight if id(copy) in waiting]
        return LabResponse(response.status, response.values, [*response.copied, *done])

    def _apply_host_writes(self, wrote: HostWrites, line: int) -> int:
        """Apply the host's writes to its pinned buffers. Return the number of bytes that changed."""
        waiting = [(copy.source, copy.source.clone()) for copy in self._bus.queue] if wrote else []
        changed = 0
        for number, content in wrote:
            if number not in self._buffers:
                raise InvalidRequest(f"there is no buffer {number}")
            # Integers compare bit by bit. As floats, the NaN of the poison would differ from itself.
            words = self._buffers[number].view(torch.int32)
            new = _tensor(content, 4 * words.numel()).view(torch.int32)
            changed += 4 * int((words != new).sum())
            words.copy_(new)
        # A copy that still waits in the queue would move the new bytes: the mistake that the exercise is about.
        if any(not torch.equal(now, before) for now, before in waiting):
            self._bus.spent.refilled_early += 1
            self._bus.spent.refilled_line = self._bus.spent.refilled_line or line
        return changed

    def _stored(self, request: messages.CopyAsync) -> torch.Tensor:
        """Return the device memory that a copy writes to. New memory is poisoned."""
        number = request.target.storage
        nbytes = request.target_nbytes
        stored = self._memory.get(number)
        if stored is None or stored.numel() != nbytes:
            used_bytes = sum(memory.numel() for memory in self._memory.values())
            if not 0 <= nbytes <= MAX_TARGET_BYTES - used_bytes:
                raise InvalidRequest(f"a target of {nbytes:,} bytes")
            # POISON has two bytes. One more of them covers an odd number of bytes.
            halves = torch.full((nbytes // 2 + 1,), POISON, dtype=torch.int16)
            stored = self._memory[number] = halves.view(torch.uint8)[:nbytes]
        return stored

    def _output_content(self, output: messages.ByteRange) -> bytes | None:
        stored = self._memory.get(output.storage)
        return None if stored is None else _bytes(self._span(stored, output.offset, output.nbytes))

    @staticmethod
    def _span(memory: torch.Tensor, offset: int, nbytes: int) -> torch.Tensor:
        if not (min(offset, nbytes) >= 0 and offset + nbytes <= memory.numel()):
            raise InvalidRequest(f"{nbytes} bytes at {offset} of {memory.numel()}")
        return memory[offset : offset + nbytes]


class SimulatedGpu:
    """The GPU that replies with recorded times."""

    def __init__(self, description: messages.RecordedGpuDescription) -> None:
        self._gpu = RecordedGpu("cpu", description.requests)
        self._calls = 0

    def respond(self, request: LabRequest) -> LabResponse:
        self._calls = _count_call(self._calls)
        try:
            return self._dispatch(request)
        except TooMuchShared as needed:
            return LabResponse(TOO_MUCH_SHARED, [float(needed.args[0])])
        except NotRecorded as refused:
            raise ValueError(str(refused)) from None
        except KeyError as unknown:
            raise InvalidRequest(f"there is no matrix {unknown}") from None

    def report(self, outputs: Sequence[messages.ByteRange]) -> messages.LabReport:
        return messages.LabReport([None for _ in outputs], None, None, self._gpu.report())

    def _dispatch(self, request: LabRequest) -> LabResponse:
        match request:
            case messages.Requests():
                sizes = self._gpu.requests
                return LabResponse(values=[x for size in sizes for x in (int(size.dtype[-2:]), size.M, size.N, size.K)])
            case messages.LaunchRecorded():
                self._gpu.launch(request.operands, request.sizes, request.configuration, request.grid)
                return LabResponse()
            case messages.Bench(begins=begins):
                return LabResponse(values=[self._gpu.bench(begins)])
            case messages.Move(what="zero"):
                self._gpu.zero(request.matrix)
                return LabResponse()
            case messages.Move(what="clone"):
                return LabResponse(values=[self._gpu.clone(request.matrix)])
            case messages.Move():
                self._gpu.copy(request.target, request.matrix)
                return LabResponse()
            case messages.GetTuningLedger():
                return LabResponse(values=self._gpu.report().ledger)
        raise InvalidRequest(f"{type(request).__name__} is not a call")


class SimulatedCiMachine:
    """The machine that times the two versions of each change."""

    def __init__(self, description: messages.CiMachineDescription) -> None:
        self._machine = CiMachine("cpu", description.seed, description.changes)
        self._calls = 0

    def respond(self, request: LabRequest) -> LabResponse:
        self._calls = _count_call(self._calls)
        if not isinstance(request, messages.TimeVersions):
            raise InvalidRequest("this machine only times two versions")
        return LabResponse(values=self._machine(request.change, request.order))

    def report(self, outputs: Sequence[messages.ByteRange]) -> messages.LabReport:
        return messages.LabReport([None for _ in outputs], None, None)


def _query_queue(queue: Queue, request: messages.Timing) -> float:
    match request.what:
        case "queue_reached":
            return queue.queue_reached()
        case "has_passed":
            return float(queue.has_passed(request.seconds))
    queue.wait_until(_moment(request.seconds))
    return 0.0


def _count_call(calls: int) -> int:
    """Return the number of calls after one more call."""
    if calls == MAX_CALLS:
        raise InvalidRequest(f"a simulated device was asked more than {MAX_CALLS:,} times")
    return calls + 1


def _moment(seconds: float) -> float:
    """Return a time after checking that a process can wait for it."""
    if not (math.isfinite(seconds) and 0 <= seconds <= 1e9):
        raise InvalidRequest(f"{seconds} s cannot be waited for")
    return seconds


def _tensor(content: bytes, nbytes: int) -> torch.Tensor:
    if len(content) != nbytes:
        raise InvalidRequest(f"{len(content)} bytes where there should be {nbytes}")
    return torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else torch.empty(0, dtype=torch.uint8)


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.numpy().tobytes()
