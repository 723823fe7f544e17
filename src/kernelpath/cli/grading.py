"""Grade for the commands, show their reports and save them."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernelpath.cli.common import Failure, errors, out
from kernelpath.course import lesson
from kernelpath.course.registry import ExerciseRef
from kernelpath.files import write_atomically
from kernelpath.host_info import HostInfo
from kernelpath.show import view
from kernelpath.show.view import TaskSequence, show_working
from kernelpath.verdict import Report, encode

if TYPE_CHECKING:
    from kernelpath.grading.grade import Device


@dataclass(frozen=True)
class GradingRequest:
    """A file to be graded, with the options of `grading.grade.grade`.

    Attributes:
        last_seconds: The seconds that its grading took the last time.
    """

    item: ExerciseRef
    submission: Path
    device: Device = "auto"
    seed: int | None = None
    recording: Path | None = None
    arch: str | None = None
    command: str | None = None
    bench: bool = False
    last_seconds: float | None = None

    def grade(self, report_progress: Callable[[str], None] | None = None) -> Report:
        """Grade the file. Import torch first, see `importing`. Raise grading.grade.Usage where it cannot be graded."""
        from kernelpath.grading import grade as grader

        return grader.grade(
            self.item,
            self.submission,
            device=self.device,
            seed=self.seed,
            report_progress=report_progress,
            bench=self.bench,
            recording=self.recording,
            arch=self.arch,
            command=self.command,
        )


def grade(request: GradingRequest, label: str) -> Report:
    """Grade a file behind a status line that begins with the label. Raises Failure."""
    with show_working(errors, label, request.last_seconds) as report_progress:
        report_progress("starting")
        start_workers()
        from kernelpath.grading.grade import Usage

        try:
            return request.grade(report_progress)
        except Usage as error:
            raise Failure(str(error)) from error


def grade_several(requests: Sequence[GradingRequest], jobs: int | None) -> Generator[tuple[int, Report], None, None]:
    """Grade files in parallel. Yield the index of each with its report as soon as the report is finished.

    Args:
        requests: The files, all for one device.
        jobs: The number of gradings at a time. The default is as many as cores and memory allow, and one on a GPU,
            where two would disturb each other's times.

    Raises Failure.
    """
    if len(requests) > 1 and (jobs or HostInfo().default_jobs) > 1:
        yield from _grade_side_by_side(requests, jobs)
    else:
        yield from _grade_in_turn(requests)


def _grade_in_turn(requests: Sequence[GradingRequest]) -> Iterator[tuple[int, Report]]:
    sequence = TaskSequence(len(requests))
    for index, request in enumerate(requests):
        yield index, grade(request, sequence.next(request.item.name))


def _grade_side_by_side(requests: Sequence[GradingRequest], jobs: int | None) -> Iterator[tuple[int, Report]]:
    with errors.status("starting"), importing():
        from kernelpath.grading import devices, pool
        from kernelpath.grading.grade import Usage
    try:
        device = devices.resolve(requests[0].device)
        # Two timings at once would measure each other.
        if device == "cuda" and jobs is None:
            yield from _grade_in_turn(requests)
            return
        threads = pool.Pool(device, jobs)
        try:
            # Start with the last weeks, which take longest, so that no core waits for a long grading at the end.
            index_by_future = {
                threads.submit(request.grade): index for index, request in reversed([*enumerate(requests)])
            }
            while index_by_future:
                with show_working(errors, f"{len(requests) - len(index_by_future)} of {len(requests)} graded"):
                    # Each report is printed as soon as it is there, whatever the order.
                    finished, _ = wait(index_by_future, return_when=FIRST_COMPLETED)
                for future in finished:
                    yield index_by_future.pop(future), future.result()
        finally:
            threads.abort()
    except Usage as error:
        raise Failure(str(error)) from error


def start_workers() -> None:
    """Start the workers. Call this before anything else that needs torch, so that the imports overlap."""
    from kernelpath.work import forkserver

    forkserver.get_server()
    with importing():
        import kernelpath.grading.grade  # noqa: F401


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Import torch inside this context: `interruptible`, and without garbage collection, since imports make no garbage.

    The collector takes a fifth of torch's import time, and would traverse all its objects again and again later.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # spinning threads would take CPU time from the workers
    gc.disable()
    try:
        with interruptible():
            yield
    finally:
        gc.freeze()
        gc.enable()


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C end the body. numpy, which torch imports, swallows it or turns it into an ImportError.

    If SIGINT is ignored, as in a shell's background jobs and under nohup, it stays ignored.
    """
    previous_handler = signal.getsignal(signal.SIGINT)
    if previous_handler is signal.SIG_IGN:
        yield
        return
    interrupts = []

    def handle_interrupt(*_: object) -> None:
        interrupts.append(True)
        raise KeyboardInterrupt

    # Remember the signal even if an import swallows the exception.
    signal.signal(signal.SIGINT, handle_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous_handler)
        if interrupts:
            raise KeyboardInterrupt


def show(item: ExerciseRef, graded: Report, *, first: bool, next_step: bool = True) -> None:
    """Print a report.

    Args:
        first: The exercise was not passed before. The first pass comes with an expert's explanation.
    """
    view.report(out, item, graded, explain=lesson.read(item.lesson).explain if first else "", next_step=next_step)


def check_json_target(target: str | None) -> None:
    """Raise Failure if `write_json` could not write, before anything is graded."""
    # A wrong path is reported now, and not after the grading.
    if target not in (None, "-") and not Path(target).absolute().parent.is_dir():
        raise Failure(f"cannot write {target}; give --json a path in a folder that exists")


def write_json(target: str, reports: list[Report], *, single: bool) -> None:
    """Write a report, or a list of reports, to a path or, for "-", to stdout. Raises Failure."""
    text = encode(reports[0] if single else reports, indent=1) + "\n"
    if target == "-":
        sys.stdout.write(text)
        return
    try:
        write_atomically(Path(target), text)
    except OSError as error:
        raise Failure(f"cannot write {target}: {error.strerror}; give --json a path in a folder that exists") from error
