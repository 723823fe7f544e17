"""A simulated device in another process tells what it tells in this one, and nothing more."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
import torch

from kernelpath.course import labs
from kernelpath.course.labs import bus
from kernelpath.course.labs.timer import CLOCK_SECONDS, Device, Workload
from kernelpath.course.problems import copies
from kernelpath.device import lab_client, lab_server
from kernelpath.device import lab_messages as messages
from kernelpath.device.elements import InvalidRequest
from kernelpath.device.messages import Acknowledged, Failed, Inputs, LabPart, Pointer, TensorRef
from kernelpath.wire import ConnectionClosed
from tests.machines import Served

WORK = Workload(3e-3, 0.2, 2, 5)


def placed() -> Callable[[torch.Tensor], TensorRef]:
    """Numbers for storages, as the client gives them."""
    numbers: dict[int, int] = {}
    fresh = count()

    def place(tensor: torch.Tensor) -> TensorRef:
        number = numbers.setdefault(tensor.untyped_storage().data_ptr(), next(fresh))
        return TensorRef(number, "float32", tensor.shape, tensor.stride(), int(tensor.storage_offset()))

    return place


def connected(lab: labs.Lab) -> tuple[Any, lab_server.SimulatedDevice]:
    """A lab's proxy, and the lab that it asks."""
    served = lab_server.create_device(lab_server.describe(lab))
    kind = "bus" if isinstance(lab, bus.SimulatedRuntime) else "timer"
    return lab_client.create_proxy(LabPart(kind, "cpu"), served.respond, placed()), served  # type: ignore[arg-type]


def timed(device: Any) -> list[float]:
    with device.during({}):
        device()
        times = [device.clock(), time.perf_counter()]
        for _ in range(10):
            device()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            time.sleep(1e-3)
            times += [float(torch.cuda.current_stream().query()), time.time()]
            end.record()
            device.synchronize()
            times += [start.elapsed_time(end), device.clock(), float(end.query())]
    return times


def test_a_timer_far_away_tells_the_same_times() -> None:
    assert timed(connected(Device(WORK))[0]) == timed(Device(WORK))


def upload(runtime: Any, source: torch.Tensor, target: torch.Tensor, early: bool) -> list[Any]:
    """What every call returned. early: fill a buffer again before its copy is done."""
    said: list[Any] = []
    buffers, event = [], None
    for _ in range(2):
        status, buffer = runtime.host_alloc(4)
        said.append(status)
        if buffer is None:
            return said
        buffers.append(buffer)
    for place, at in enumerate(range(0, source.numel(), 4)):
        buffer = buffers[place % 2][: source[at : at + 4].numel()]
        if place >= 2 and not early:
            said.append(runtime.wait(event))
        runtime.fill(buffer, source[at : at + 4])
        said.append(runtime.copy_async(target[at : at + 4], buffer))
        status, event = runtime.record()
        said.append(status)
    said += [runtime.copy_async(target[:2], source[:2]), runtime.synchronize(), runtime.host_free(buffers[0])]
    return [*said, runtime.ledger(0).tolist()]


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("fails", [0, 1, 2, 3, 6, 9])
def test_a_bus_far_away_copies_the_same_and_counts_the_same(fails: int, early: bool) -> None:
    here = bus.SimulatedRuntime("cpu", fails, 719)
    far, served = connected(here)
    source = torch.arange(1.0, 12.0)
    targets = [torch.zeros_like(source), torch.zeros_like(source)]
    if fails == 6:
        early = True  # the event of a record that failed is None
    assert upload(far, source, targets[0], early) == upload(here, source, targets[1], early)
    assert torch.equal(*targets)
    ended = served.report([])
    assert ended.spent is not None
    assert ended.spent.calls == here.spent.calls
    assert (ended.spent.live_buffers, ended.spent.nbytes) == (here.spent.live_buffers, here.spent.nbytes)
    assert ended.spent.seconds == pytest.approx(here.spent.seconds)


@pytest.mark.parametrize("early", [False, True])
def test_a_buffer_that_is_filled_before_its_copy_has_read_it_is_told_with_the_line(early: bool) -> None:
    far, served = connected(bus.SimulatedRuntime("cpu", 0, 0))
    upload(far, torch.arange(1.0, 12.0), torch.zeros(11), early)
    spent = served.report([]).spent
    assert spent is not None
    body, first = inspect.getsourcelines(upload)
    line = {name: first + next(k for k, text in enumerate(body) if f"runtime.{name}(" in text) for name in spent.calls}
    filled = first + next(k for k, text in enumerate(body) if "runtime.fill(" in text)
    assert (spent.refilled_early, spent.refilled_line) == ((1, filled) if early else (0, 0))
    assert len(spent.lines) == len(spent.calls)
    assert (spent.calls[2], spent.lines[2]) == ("copy_async", line["copy_async"])


def test_the_host_pays_for_what_it_writes_past_the_runtime() -> None:
    far, served = connected(bus.SimulatedRuntime("cpu", 0, 0))
    assert isinstance(served, lab_server.SimulatedBus)
    _, buffer = far.host_alloc(1000)
    before = served._bus.spent.seconds
    buffer[:500] = 1.0
    far.record()
    assert served._bus.spent.seconds - before == pytest.approx(2000 / bus.BYTES_PER_SECOND + bus.CALL_SECONDS)


def test_the_vector_is_what_copies_left_whatever_the_host_wrote() -> None:
    lab = bus.SimulatedRuntime("cpu", 0, 0)
    far, served = connected(lab)
    target = torch.empty(4)
    _, buffer = far.host_alloc(4)
    far.fill(buffer, torch.ones(4))
    far.copy_async(target, buffer)
    far.synchronize()
    target[:] = 7.0
    (held,) = served.report([messages.ByteRange(0, 0, 16)]).output_contents
    assert held == torch.ones(4).numpy().tobytes()
    assert served.report([messages.ByteRange(1, 0, 16)]).output_contents == [None]


def test_a_proxy_has_nothing_to_read() -> None:
    far, _ = connected(bus.SimulatedRuntime("cpu", 9, 719))
    assert not hasattr(far, "fails")
    assert not hasattr(far, "spent")
    assert not hasattr(connected(Device(WORK))[0], "work")


POINTER = Pointer(0, 0)


@pytest.mark.parametrize(
    "asked",
    [
        messages.Wait(moment=math.inf),
        messages.Wait(moment=math.nan),
        messages.Timing("wait_until", -1.0),
        messages.Timing("launch"),
        messages.Fill(nbytes=-1),
        messages.RecordEvent(wrote=[(5, b"")]),
        messages.HostFree(buffer=5),
        messages.CopyAsync(number=1, target=POINTER, target_nbytes=4, source=b"12345678", nbytes=8),
        messages.CopyAsync(number=1, target=POINTER, target_nbytes=8, source=b"1234", nbytes=8),
        messages.CopyAsync(number=1, target=Pointer(0, -8), target_nbytes=8, source=b"", nbytes=0),
        messages.CopyAsync(number=1, target=POINTER, target_nbytes=8, source=POINTER, nbytes=8),
        messages.CopyAsync(number=1, target=POINTER, target_nbytes=1 << 40, source=b"", nbytes=0),
    ],
)
def test_a_bus_refuses_what_no_honest_client_asks(asked: messages.FromClient) -> None:
    _, served = connected(bus.SimulatedRuntime("cpu", 0, 0))
    with pytest.raises(InvalidRequest):
        served.respond(asked)


def test_a_timer_cannot_be_set_back() -> None:
    _, served = connected(Device(WORK))
    for asked in (messages.Timing("sleep", -1.0), messages.Timing("sleep", math.nan), messages.RecordEvent()):
        with pytest.raises(InvalidRequest):
            served.respond(asked)


def test_each_call_fails_once_as_often_as_the_entry_makes_one() -> None:
    runtime, source, _ = copies.inputs(torch.Generator().manual_seed(1), 12, copies.EACH, 719)
    assert isinstance(runtime, bus.SimulatedRuntime)
    assert list(runtime.variants()) == []
    upload(runtime, source, torch.empty(12), early=False)
    fails = [lab.fails for ((lab, *_),) in zip(labs.inputs_with_variants((runtime, source, 4)), strict=False)]
    assert fails == list(range(1, len(runtime.spent.calls) + 1))
    assert len(fails) == 11


@pytest.fixture
def machine() -> Iterator[Served]:
    served = Served()
    yield served
    served.close()


def test_a_lab_begins_and_ends_with_a_call(machine: Served) -> None:
    submission = machine.attach()
    asked = messages.Timing("clock")
    assert submission.ask(asked) == Failed("REFUSED", "there is no simulated device")
    machine.ask(messages.BeginLab(submission.number, Inputs((), {}), messages.TimerDescription(WORK)), Acknowledged)
    told = submission.ask(asked)
    assert isinstance(told, messages.LabResponse)
    assert told.values == [CLOCK_SECONDS]
    assert submission.ask(messages.Timing("sleep", -1.0)) == Failed("REFUSED", "-1.0 s cannot be waited for")
    ended = machine.ask(messages.EndLab(submission.number, ()), messages.LabReport)
    assert ended == messages.LabReport([], None, None)
    assert submission.ask(asked) == Failed("REFUSED", "there is no simulated device")


def test_what_is_no_call_of_a_lab_is_told(machine: Served) -> None:
    submission = machine.attach()
    machine.ask(messages.BeginLab(submission.number, Inputs((), {}), messages.BusDescription(0, 0)), Acknowledged)
    with pytest.raises(ConnectionClosed):
        submission.ask(messages.BeginLab(submission.number, Inputs((), {}), messages.BusDescription(0, 0)))
    ended = machine.ask(messages.EndLab(submission.number, ()), messages.LabReport)
    assert ended.failed is not None
    assert ended.failed.kind == "FORGED"
    assert ended.spent == bus.RuntimeUsage()
