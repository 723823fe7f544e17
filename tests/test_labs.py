"""Test the simulated devices: their clocks are independent of the host, and all ways to read them agree."""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter

import pytest
import torch

from kernelpath.course import labs, registry
from kernelpath.course.labs import bus, multiprocessor
from kernelpath.course.labs.timer import CALLS_AT_MOST, Device, Workload, symptom
from kernelpath.course.problems import copies, timer
from kernelpath.grading import compare, grade
from kernelpath.verdict import Verdict
from tests import planted
from tests.planted import Planted

REJECTS = [
    reject
    for reject in planted.rejects(Path(__file__).parents[1])
    if reject.exercise == "w03a_benchmark" and reject.sources
]
HARDEST = Workload(3e-3, 0.2, 150, 25)

Timer = Callable[[Device], list[float]]


def collect_times(device: Device, begin: Callable[[], float], wait: Callable[[], object]) -> list[float]:
    for _ in range(200):
        device()
    wait()
    times = []
    for _ in range(200):
        start = begin()
        device()
        wait()
        times.append(begin() - start)
    return times


def by_what_it_is_given(device: Device) -> list[float]:
    return collect_times(device, device.clock, device.synchronize)


def by_python_and_cuda(device: Device) -> list[float]:
    return collect_times(device, time.perf_counter, torch.cuda.synchronize)


def by_a_name_of_its_own(device: Device) -> list[float]:
    return collect_times(device, perf_counter, lambda: torch.cuda.current_stream().synchronize())


def by_nanoseconds(device: Device) -> list[float]:
    return collect_times(device, lambda: 1e-9 * time.monotonic_ns(), torch.cuda.synchronize)


def by_events(device: Device) -> list[float]:
    for _ in range(200):
        device()
    times = []
    for _ in range(200):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        device()
        end.record()
        end.synchronize()
        times.append(1e-3 * start.elapsed_time(end))
    return times


def has_expected_quartiles(times: list[float], work: Workload) -> bool:
    quartiles = torch.tensor(statistics.quantiles(times, n=4), dtype=torch.float64)
    truth = torch.tensor(work.quartiles, dtype=torch.float64)
    return not bool(compare.mismatches(quartiles, truth, timer.PROBLEM.tolerance["float64"]).any())


@contextlib.contextmanager
def busy() -> Iterator[None]:
    """Run three spinning processes per processor, so that the test gets a quarter of the CPU time."""
    # Each process prints a line when it spins, which the loop below waits for.
    spin = [sys.executable, "-c", "print(flush=True)\nwhile True: pass"]
    spinning = [subprocess.Popen(spin, stdout=subprocess.PIPE) for _ in range(3 * (os.cpu_count() or 1))]
    try:
        for process in spinning:
            assert process.stdout is not None
            process.stdout.readline()
        yield
    finally:
        for process in spinning:
            process.kill()
            process.communicate()


@pytest.mark.parametrize(
    "timer_of", [by_what_it_is_given, by_python_and_cuda, by_a_name_of_its_own, by_nanoseconds, by_events]
)
@pytest.mark.parametrize("work", [Workload(3e-3, 0.0, 0, 0), HARDEST], ids=["quiet", "hardest"])
def test_all_clocks_of_a_timer_agree(timer_of: Timer, work: Workload) -> None:
    device = Device(work)
    with device.during(globals()):
        assert has_expected_quartiles(timer_of(device), work)
    assert time.perf_counter is perf_counter, "the real clock must be restored"


def test_a_busy_host_does_not_change_times() -> None:
    """Times must be bit-identical to those of an idle host. With a real clock, 5 of 6 correct timers were rejected."""
    quiet = by_what_it_is_given(Device(HARDEST))
    with busy():
        for _ in range(20):
            device = Device(HARDEST)
            with device.during(globals()):
                assert by_python_and_cuda(device) == quiet


def test_sleeping_advances_the_device_and_takes_no_real_time() -> None:
    device = Device(Workload(3e-3, 0.0, 0, 0))
    with device.during({}):
        start = time.time()
        device()
        time.sleep(3600)
        torch.cuda.synchronize()
        assert 3600 <= time.time() - start < 3600.001


def test_replacements_made_by_a_submission_stay_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", time.sleep)

    def forged(seconds: object, /) -> None: ...

    with Device(HARDEST).during({}):
        time.sleep = forged
    assert time.sleep is forged


def test_all_streams_are_one_queue() -> None:
    device = Device(Workload(3e-3, 0.0, 0, 0))
    with device.during({}):
        side = torch.cuda.Stream()
        stream_context = torch.cuda.stream(side)
        assert isinstance(stream_context, contextlib.nullcontext), (
            "a real stream could overtake the fills of new memory"
        )
        with stream_context:
            device()
        assert not torch.cuda.default_stream().query()
        side.wait_stream(torch.cuda.current_stream())
        begun = time.time()
        side.synchronize()
        assert time.time() - begun == pytest.approx(3e-3, rel=0.01)
        assert torch.cuda.default_stream().query()


def test_an_incomplete_event_has_no_time() -> None:
    device = Device(Workload(3e-3, 0.0, 0, 0))
    with device.during({}):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        with pytest.raises(RuntimeError, match="was not recorded"):
            start.query()
        start.record()
        device()
        end.record()
        assert not end.query()
        with pytest.raises(RuntimeError, match="not completed yet"):
            start.elapsed_time(end)
        end.synchronize()
        assert start.elapsed_time(end) == pytest.approx(3.005), "the launch is between the marks"


def test_a_device_has_a_limit_of_calls() -> None:
    device = Device(HARDEST)
    for _ in range(CALLS_AT_MOST):
        device()
    with pytest.raises(RuntimeError, match="more than 500 times"):
        device()


def test_quartiles_exclude_unusual_calls() -> None:
    times = sorted(Workload(1.0, 0.2, 0, 0).duration(index) for index in range(1000))
    assert (times[250], times[500], times[750]) == pytest.approx((0.9, 1.0, 1.1), abs=1e-3)


def test_a_symptom_says_what_to_do() -> None:
    work = Workload(1.0, 0.0, 150, 0)
    assert symptom(work, (0.1, 0.1, 0.1), 0).startswith("far too short")
    assert (
        symptom(work, (1.0, 1.0, 3.0), 2)
        == "too long: the slow first calls are included; warm up before you start the clock"
    )


def test_a_timer_may_use_pythons_clock_in_a_submission(tmp_path: Path) -> None:
    solution = registry.find("benchmark").solution.read_text()
    with_its_own = solution.replace("import statistics\n", "import statistics\nfrom time import perf_counter\n")
    for there, instead in (("begin = clock()", "begin = perf_counter()"), ("(clock() - ", "(perf_counter() - ")):
        assert there in with_its_own
        with_its_own = with_its_own.replace(there, instead)
    submission = tmp_path / "w03a_benchmark.py"
    submission.write_text(with_its_own.replace("        synchronize()\n", "        torch.cuda.synchronize()\n"))
    assert grade.grade(registry.find("benchmark"), submission, device="cpu", seed=1).verdict is Verdict.PASSED


@pytest.mark.parametrize("reject", REJECTS, ids=lambda reject: reject.title)
def test_a_wrong_timer_is_rejected_with_every_clock(reject: Planted, tmp_path: Path) -> None:
    text = reject.sources[".py"].replace("clock()", "time.perf_counter()").replace("import torch", "import time, torch")
    submission = tmp_path / f"{reject.title}.py"
    submission.write_text(text)
    report = grade.grade(registry.find("benchmark"), submission, device="cpu", seed=1)
    assert report.verdict is reject.verdict, report.cause


def test_only_a_simulated_device_wraps_a_call() -> None:
    watch = contextlib.nullcontext()
    assert labs.surround(watch, len, (1, "x")) is watch
    assert labs.surround(watch, by_events, (Device(HARDEST), 1)) is not watch


LAST_WAIT = "        check(runtime.synchronize())\n"
IN_A_STREAM = "            with torch.cuda.stream(torch.cuda.Stream()):\n    "


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (LAST_WAIT, "        torch.cuda.synchronize()\n"),
        (LAST_WAIT, "        torch.cuda.current_stream().synchronize()\n"),
        (LAST_WAIT, "        torch.cuda.Stream().record_event().synchronize()\n"),
        ("            check(runtime.copy_async(", f"{IN_A_STREAM}            check(runtime.copy_async("),
    ],
)
def test_waiting_through_torch_waits_for_the_bus(tmp_path: Path, before: str, after: str) -> None:
    """Such a solution is correct on a GPU. A bus that ignored torch's synchronization left the last copies undone."""
    solution = registry.find("copies").solution.read_text()
    assert before in solution
    submission = tmp_path / "w02d_copies.py"
    submission.write_text(solution.replace(before, after))
    report = grade.grade(registry.find("copies"), submission, device="cpu", seed=1)
    assert report.verdict is Verdict.PASSED, report.cause


def runtime(**changes: int) -> bus.SimulatedRuntime:
    return bus.SimulatedRuntime("cpu", changes.get("fails", 0), changes.get("status", 0))


def test_a_copy_reads_its_source_as_late_as_possible() -> None:
    simulated = runtime()
    _, buffer = simulated.host_alloc(4)
    assert buffer is not None
    target = torch.zeros(4)
    simulated.fill(buffer, torch.ones(4))
    simulated.copy_async(target, buffer)
    _, event = simulated.record()
    simulated.fill(buffer, torch.full((4,), 2.0))
    assert target.tolist() == [0.0] * 4, "nobody has waited"
    simulated.wait(event)
    assert target.tolist() == [2.0] * 4, "the buffer was filled again too early"


def test_pinned_memory_is_limited_and_counted() -> None:
    simulated = runtime()
    status, buffer = simulated.host_alloc(bus.PINNED_AT_MOST)
    assert (status, simulated.host_alloc(1)) == (0, (bus.OUT_OF_MEMORY, None))
    assert buffer is not None
    assert simulated.ledger(0)[1] == 1
    simulated.host_free(buffer)
    assert simulated.ledger(0)[1] == 0
    with pytest.raises(ValueError, match="already freed"):
        simulated.host_free(buffer)


@pytest.mark.parametrize("waits", [True, False])
def test_a_buffer_freed_during_a_copy_is_overwritten_and_counted(waits: bool) -> None:
    simulated = runtime()
    _, buffer = simulated.host_alloc(4)
    assert buffer is not None
    target = torch.zeros(2)
    simulated.fill(buffer, torch.ones(4))
    simulated.copy_async(target, buffer[2:])
    if waits:
        simulated.synchronize()
    simulated.host_free(buffer)
    simulated.synchronize()
    assert simulated.spent.freed_early == (not waits)
    assert target.isnan().tolist() == [not waits] * 2


def test_a_buffer_may_be_freed_after_a_synchronize_that_failed() -> None:
    simulated = runtime(fails=3, status=719)
    _, buffer = simulated.host_alloc(4)
    assert buffer is not None
    simulated.copy_async(torch.zeros(4), buffer)
    assert simulated.synchronize() == 719
    simulated.host_free(buffer)
    assert simulated.spent.freed_early == 0


def test_a_failing_call_does_nothing() -> None:
    simulated = runtime(fails=2, status=719)
    _, buffer = simulated.host_alloc(4)
    assert buffer is not None
    assert simulated.copy_async(torch.zeros(4), buffer) == 719
    assert simulated.synchronize() == 0
    assert copies.reference(simulated, torch.ones(4), 4)[0].tolist() == [0.0] * 4


def test_published_limits_and_their_reason() -> None:
    assert multiprocessor.published("sm_90", 256, 41, 0) == 5
    assert multiprocessor.reason("sm_90", 256, 41, 0, 6, 5) == ", limited by registers"
    assert multiprocessor.published("sm_80", 32, 16, 200 * 1024) == 0
    assert multiprocessor.reason("H200", 256, 41, 0, 6, 5) == ""


def test_without_a_gpu_the_driver_is_the_recorded_one() -> None:
    rows, sm = multiprocessor.draw(torch.Generator().manual_seed(1), "driver", 0)
    assert (len(rows), sm["name"]) == (len(multiprocessor.RECORDED), "H200")
    assert multiprocessor.oracle("H200")(480, 168, 103979) == 0
