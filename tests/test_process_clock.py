"""Test the clock of time limits, which stops while a process waits for a processor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator

import pytest

from kernelpath.verdict import Verdict
from kernelpath.work import runner
from kernelpath.work.process_clock import MAX_STRETCH, ProcessClock, Usage, read_usage
from tests.conftest import GradeText
from tests.waiting import happens


class SimulatedProcess:
    """Simulate the wall clock and a process whose state and processor time a test sets."""

    pid = 7

    def __init__(self) -> None:
        self.time = 100.0
        self.processor_seconds = 30.0
        self.runnable = True
        self.clock = ProcessClock(lambda: [self.pid], self.read, lambda: self.time)

    def read(self, pids: Iterable[int]) -> Usage:
        return Usage(dict.fromkeys(pids, self.processor_seconds), self.runnable)

    def observe(self, times: int, passed: float = 0.2, used: float = 0.0) -> float:
        """Return the clock's time after a number of intervals of `passed` seconds, `used` of them on a processor."""
        for _ in range(times):
            self.time += passed
            self.processor_seconds += used
            seconds = self.clock.elapsed()
        return seconds


def test_a_process_that_computes_alone_is_charged_with_the_wall_clock() -> None:
    process = SimulatedProcess()
    process.observe(1)
    assert process.observe(50, used=0.2) == pytest.approx(10.0, abs=0.2)


def test_a_process_on_a_busy_computer_is_charged_with_its_processor_time() -> None:
    process = SimulatedProcess()
    process.observe(1)
    assert process.observe(50, used=0.02) == pytest.approx(1.0, abs=0.2)


def test_a_process_that_sleeps_is_charged_with_the_wall_clock() -> None:
    process = SimulatedProcess()
    process.runnable = False
    assert process.observe(50) == pytest.approx(10.0)


def test_many_threads_are_not_charged_with_more_than_the_wall_clock() -> None:
    process = SimulatedProcess()
    process.observe(1)
    assert process.observe(50, used=3.2) == pytest.approx(10.0, abs=0.2)


def test_a_process_without_any_processor_time_is_charged_eventually() -> None:
    """A process could otherwise stop the clock by giving itself the lowest priority."""
    process = SimulatedProcess()
    assert process.observe(int(MAX_STRETCH) * 5) == pytest.approx(1.0)


def test_a_process_is_not_charged_between_distant_observations() -> None:
    """The grader may itself have waited for a processor, and the process may have slept only for a moment."""
    process = SimulatedProcess()
    process.observe(1)
    process.runnable = False
    assert process.observe(1, passed=6.0) < 0.5


def test_processes_that_are_hidden_are_charged_with_the_wall_clock() -> None:
    now = iter(range(100))
    clock = ProcessClock(lambda: [], now=lambda: 0.2 * next(now))
    assert [clock.elapsed() for _ in range(3)] == pytest.approx([0.2, 0.4, 0.6])


@pytest.fixture
def spinning_process() -> Iterator[subprocess.Popen[bytes]]:
    # The shell waits for its child, so only the descendant is runnable.
    command = ["sh", "-c", f"'{sys.executable}' -Sc 'while True: pass' & wait"]
    process = subprocess.Popen(command, start_new_session=True)
    yield process
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_processor_time_of_descendants_counts(spinning_process: subprocess.Popen[bytes]) -> None:
    assert happens(lambda: sum(read_usage([spinning_process.pid]).processor_seconds.values()) > 0.1)
    assert read_usage([spinning_process.pid]).runnable
    os.killpg(spinning_process.pid, signal.SIGSTOP)
    assert happens(lambda: not read_usage([spinning_process.pid]).runnable)


@pytest.fixture
def busy_processor() -> Iterator[int]:
    """Keep one processor busy with six other programs."""
    number = min(os.sched_getaffinity(0))
    endless_loop = f"import os; os.sched_setaffinity(0, {{{number}}})\nwhile True: pass"
    programs = [subprocess.Popen([sys.executable, "-Sc", endless_loop]) for _ in range(6)]
    yield number
    for program in programs:
        program.kill()
        program.wait()


def test_a_busy_computer_does_not_time_out_a_submission(
    busy_processor: int, grade_text: GradeText, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On this busy processor, one second of work takes at least seven seconds, and the limit is three."""
    monkeypatch.setattr(runner, "CASE_SECONDS", 3.0)
    report = grade_text(f"""import os, time
os.sched_setaffinity(0, {{{busy_processor}}})
def double(x, work=[1.0]):
    end = time.thread_time() + (work.pop() if work else 0.0)
    while time.thread_time() < end:
        pass
    return 2 * x
""")
    assert report.verdict is Verdict.PASSED, report.cause


def test_an_endless_loop_times_out_on_a_busy_computer(
    busy_processor: int, grade_text: GradeText, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "CASE_SECONDS", 1.0)
    body = f"import os; os.sched_setaffinity(0, {{{busy_processor}}})\n    while True: pass"
    report = grade_text(f"def double(x):\n    {body}\n")
    assert (report.verdict, report.cause[:21]) == (Verdict.TIMED_OUT, "no answer within 1 s,")
