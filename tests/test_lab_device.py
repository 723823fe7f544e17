"""Test that a simulated device in another process behaves like a local one and reveals nothing more."""

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


def number_storages() -> Callable[[torch.Tensor], TensorRef]:
    """Return a function that refers to a tensor by the number of its storage, as the client does."""
    numbers: dict[int, int] = {}
    next_number = count()

    def to_tensor_ref(tensor: torch.Tensor) -> TensorRef:
        number = numbers.setdefault(tensor.untyped_storage().data_ptr(), next(next_number))
        return TensorRef(number, "float32", tensor.shape, tensor.stride(), int(tensor.storage_offset()))

    return to_tensor_ref


def connect(lab: labs.Lab) -> tuple[Any, lab_server.SimulatedDevice]:
    """Return the proxy of a lab and the simulated device that responds to it."""
    server = lab_server.create_device(lab_server.describe(lab))
    kind = "bus" if isinstance(lab, bus.SimulatedRuntime) else "timer"
    return lab_client.create_proxy(LabPart(kind, "cpu"), server.respond, number_storages()), server  # type: ignore[arg-type]


def measure_times(device: Any) -> list[float]:
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


def test_a_remote_timer_returns_the_times_of_a_local_one() -> None:
    assert measure_times(connect(Device(WORK))[0]) == measure_times(Device(WORK))


def upload(runtime: Any, source: torch.Tensor, target: torch.Tensor, early: bool) -> list[Any]:
    """Copy source to target in chunks and return the result of every call.

    early: refill a buffer before its copy has completed.
    """
    results: list[Any] = []
    buffers, event = [], None
    for _ in range(2):
        status, buffer = runtime.host_alloc(4)
        results.append(status)
        if buffer is None:
            return results
        buffers.append(buffer)
    for chunk, start in enumerate(range(0, source.numel(), 4)):
        buffer = buffers[chunk % 2][: source[start : start + 4].numel()]
        if chunk >= 2 and not early:
            results.append(runtime.wait(event))
        runtime.fill(buffer, source[start : start + 4])
        results.append(runtime.copy_async(target[start : start + 4], buffer))
        status, event = runtime.record()
        results.append(status)
    results += [runtime.copy_async(target[:2], source[:2]), runtime.synchronize(), runtime.host_free(buffers[0])]
    return [*results, runtime.ledger(0).tolist()]


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("fails", [0, 1, 2, 3, 6, 9])
def test_a_remote_bus_behaves_like_a_local_one(fails: int, early: bool) -> None:
    local = bus.SimulatedRuntime("cpu", fails, 719)
    proxy, server = connect(local)
    source = torch.arange(1.0, 12.0)
    targets = [torch.zeros_like(source), torch.zeros_like(source)]
    if fails == 6:
        early = True  # the event of a record that failed is None
    assert upload(proxy, source, targets[0], early) == upload(local, source, targets[1], early)
    assert torch.equal(*targets)
    report = server.report([])
    assert report.spent is not None
    assert report.spent.calls == local.spent.calls
    assert (report.spent.live_buffers, report.spent.nbytes) == (local.spent.live_buffers, local.spent.nbytes)
    assert report.spent.seconds == pytest.approx(local.spent.seconds)


@pytest.mark.parametrize("early", [False, True])
def test_refilling_a_buffer_before_its_copy_ends_is_reported_with_the_line(early: bool) -> None:
    proxy, server = connect(bus.SimulatedRuntime("cpu", 0, 0))
    upload(proxy, torch.arange(1.0, 12.0), torch.zeros(11), early)
    spent = server.report([]).spent
    assert spent is not None
    body, first = inspect.getsourcelines(upload)
    line = {name: first + next(k for k, text in enumerate(body) if f"runtime.{name}(" in text) for name in spent.calls}
    fill_line = first + next(k for k, text in enumerate(body) if "runtime.fill(" in text)
    assert (spent.refilled_early, spent.refilled_line) == ((1, fill_line) if early else (0, 0))
    assert len(spent.lines) == len(spent.calls)
    assert (spent.calls[2], spent.lines[2]) == ("copy_async", line["copy_async"])


def test_direct_writes_to_a_host_buffer_cost_time() -> None:
    proxy, server = connect(bus.SimulatedRuntime("cpu", 0, 0))
    assert isinstance(server, lab_server.SimulatedBus)
    _, buffer = proxy.host_alloc(1000)
    before = server._bus.spent.seconds
    buffer[:500] = 1.0
    proxy.record()
    assert server._bus.spent.seconds - before == pytest.approx(2000 / bus.BYTES_PER_SECOND + bus.CALL_SECONDS)


def test_the_output_contains_only_copied_bytes() -> None:
    lab = bus.SimulatedRuntime("cpu", 0, 0)
    proxy, server = connect(lab)
    target = torch.empty(4)
    _, buffer = proxy.host_alloc(4)
    proxy.fill(buffer, torch.ones(4))
    proxy.copy_async(target, buffer)
    proxy.synchronize()
    target[:] = 7.0
    (content,) = server.report([messages.ByteRange(0, 0, 16)]).output_contents
    assert content == torch.ones(4).numpy().tobytes()
    assert server.report([messages.ByteRange(1, 0, 16)]).output_contents == [None]


def test_a_proxy_hides_the_parameters_of_its_device() -> None:
    proxy, _ = connect(bus.SimulatedRuntime("cpu", 9, 719))
    assert not hasattr(proxy, "fails")
    assert not hasattr(proxy, "spent")
    assert not hasattr(connect(Device(WORK))[0], "work")


POINTER = Pointer(0, 0)


@pytest.mark.parametrize(
    "message",
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
def test_a_bus_refuses_forged_requests(message: messages.FromClient) -> None:
    _, server = connect(bus.SimulatedRuntime("cpu", 0, 0))
    with pytest.raises(InvalidRequest):
        server.respond(message)


def test_a_timer_cannot_run_backwards() -> None:
    _, server = connect(Device(WORK))
    for message in (messages.Timing("sleep", -1.0), messages.Timing("sleep", math.nan), messages.RecordEvent()):
        with pytest.raises(InvalidRequest):
            server.respond(message)


def test_a_variant_exists_for_the_failure_of_each_call() -> None:
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


def test_a_lab_responds_only_between_begin_and_end(machine: Served) -> None:
    submission = machine.attach()
    message = messages.Timing("clock")
    assert submission.ask(message) == Failed("REFUSED", "there is no simulated device")
    machine.ask(messages.BeginLab(submission.number, Inputs((), {}), messages.TimerDescription(WORK)), Acknowledged)
    response = submission.ask(message)
    assert isinstance(response, messages.LabResponse)
    assert response.values == [CLOCK_SECONDS]
    assert submission.ask(messages.Timing("sleep", -1.0)) == Failed("REFUSED", "-1.0 s cannot be waited for")
    report = machine.ask(messages.EndLab(submission.number, ()), messages.LabReport)
    assert report == messages.LabReport([], None, None)
    assert submission.ask(message) == Failed("REFUSED", "there is no simulated device")


def test_a_forged_lab_message_is_reported(machine: Served) -> None:
    submission = machine.attach()
    machine.ask(messages.BeginLab(submission.number, Inputs((), {}), messages.BusDescription(0, 0)), Acknowledged)
    with pytest.raises(ConnectionClosed):
        submission.ask(messages.BeginLab(submission.number, Inputs((), {}), messages.BusDescription(0, 0)))
    report = machine.ask(messages.EndLab(submission.number, ()), messages.LabReport)
    assert report.failed is not None
    assert report.failed.kind == "FORGED"
    assert report.spent == bus.RuntimeUsage()
