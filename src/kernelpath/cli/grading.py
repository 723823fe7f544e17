"""How the verbs grade, show a report and write it down."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelpath.cli.common import Failure, errors, out
from kernelpath.course import lesson
from kernelpath.course.registry import Item
from kernelpath.files import write_atomically
from kernelpath.host_info import HostInfo
from kernelpath.show import view
from kernelpath.show.working import Several, working
from kernelpath.verdict import Report, encode


@dataclass(frozen=True)
class Request:
    """A file to be graded. about: seconds that this took the last time."""

    item: Item
    submission: Path
    about: float | None = None


def grade(item: Item, submission: Path, label: str, *, about: float | None = None, **options: Any) -> Report:
    """Grade a file behind a status line that begins with the label. about: seconds to expect. Raises Failure."""
    with working(errors, label, about) as tell:
        tell("starting")
        start_workers()
        from kernelpath.grading import grade as grader

        try:
            return grader.grade(item, submission, report_progress=tell, **options)
        except grader.Usage as error:
            raise Failure(str(error)) from error


def grade_several(
    requests: Sequence[Request], jobs: int | None, **options: Any
) -> Generator[tuple[int, Report], None, None]:
    """Grade files side by side; yields the index of each with its report as soon as it is known.

    jobs: how many at a time. None for as many as cores and memory allow, and for one where they run on a GPU, as two
    would disturb each other's times. options: as grading.grade.grade takes them. Raises Failure.
    """
    if len(requests) > 1 and (jobs or HostInfo().default_jobs) > 1:
        yield from _grade_side_by_side(requests, jobs, **options)
    else:
        yield from _grade_in_turn(requests, **options)


def _grade_in_turn(requests: Sequence[Request], **options: Any) -> Iterator[tuple[int, Report]]:
    several = Several(len(requests))
    for index, request in enumerate(requests):
        label = several.next(request.item.name)
        yield index, grade(request.item, request.submission, label, about=request.about, **options)


def _grade_side_by_side(requests: Sequence[Request], jobs: int | None, **options: Any) -> Iterator[tuple[int, Report]]:
    with errors.status("starting"), importing():
        from kernelpath.grading import devices, pool
        from kernelpath.grading import grade as grader
    try:
        device = devices.resolve(options["device"])
        if device == "cuda" and jobs is None:
            yield from _grade_in_turn(requests, **options)
            return
        threads = pool.Pool(device, jobs)
        try:
            # the last weeks take longest: one of them that began last would be waited for by all other cores
            waiting = {
                threads.submit(grader.grade, request.item, request.submission, **options): index
                for index, request in reversed([*enumerate(requests)])
            }
            while waiting:
                with working(errors, f"{len(requests) - len(waiting)} of {len(requests)} graded"):
                    finished, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in finished:
                    yield waiting.pop(future), future.result()
        finally:
            threads.abort()
    except grader.Usage as error:
        raise Failure(str(error)) from error


def start_workers() -> None:
    """Call this before anything else that needs torch: the import then overlaps with those of the workers."""
    from kernelpath.work import forkserver

    forkserver.get_server()
    with importing():
        import kernelpath.grading.grade  # noqa: F401


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Import torch inside: `interruptible`, and without looking for garbage, which no import makes.

    The collector takes a fifth of the time that torch takes, and would look at all of it again and again later.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads that spin take the workers' time
    gc.disable()
    try:
        with interruptible():
            yield
    finally:
        gc.freeze()
        gc.enable()


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C end what is inside. numpy, imported by torch, swallows it or turns it into an ImportError.

    Where SIGINT is ignored, as in a shell's background jobs and under nohup, it stays ignored.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        yield
        return
    heard = []

    def hear(*_: object) -> None:
        heard.append(True)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if heard:
            raise KeyboardInterrupt


def show(item: Item, graded: Report, *, first: bool, next_step: bool = True) -> None:
    """Print a report. first: it is no pass again; with the first pass stands what an expert would do next."""
    view.report(out, item, graded, explain=lesson.read(item.lesson).explain if first else "", next_step=next_step)


def check_json_target(target: str | None) -> None:
    """Raises Failure before anything is graded, where `write_json` could not write."""
    if target not in (None, "-") and not Path(target).absolute().parent.is_dir():
        raise Failure(f"cannot write {target}; give --json a path in a folder that exists")


def write_json(target: str, reports: list[Report], *, single: bool) -> None:
    """Write one report, or a list of them, to a path or, for "-", to stdout. Raises Failure."""
    text = encode(reports[0] if single else reports, indent=1) + "\n"
    if target == "-":
        sys.stdout.write(text)
        return
    try:
        write_atomically(Path(target), text)
    except OSError as error:
        raise Failure(f"cannot write {target}: {error.strerror}; give --json a path in a folder that exists") from error
