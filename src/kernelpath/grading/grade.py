"""Grade submissions. This process holds the worker and the clock, compares and decides, and imports no submission."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from kernelpath.course import registry
from kernelpath.course.labs.fabric import Log
from kernelpath.course.problem import Case
from kernelpath.course.registry import Item
from kernelpath.device import messages as device_messages
from kernelpath.grading import devices
from kernelpath.grading.devices import Device
from kernelpath.grading.grading_run import GradingRun, Progress
from kernelpath.grading.kinds.trace import on_recording
from kernelpath.grading.launch_recording import NothingToDraw, RecordedLaunch
from kernelpath.grading.submission import Submission
from kernelpath.grading.workers import Workers
from kernelpath.packages import versions
from kernelpath.verdict import Report
from kernelpath.work.runner import Usage

__all__ = ["Device", "NothingToDraw", "Progress", "Session", "Usage", "grade", "versions"]


def grade(
    item: Item,
    submission: Path,
    *,
    device: Device = "auto",
    seed: int | None = None,
    report_progress: Progress | None = None,
    bench: bool = False,
    brief: bool = False,
    timed: bool = True,
    recording: Path | None = None,
    arch: str | None = None,
) -> Report:
    """Grade the Python file `submission` as the exercise `item`.

    Args:
        item: The exercise.
        submission: The file.
        device: "cpu", "cuda", or "auto" for a GPU where there is one.
        seed: Generates sizes and inputs. None stands for a fresh seed.
        report_progress: Called with a description of each step.
        bench: Whether to take every round of a measurement.
        brief: Whether to stop at the case that decides on the verdict, and not to search for a pattern in the failing
            cases.
        timed: Whether to measure the speed, on a GPU.
        recording: A folder with a recording of the learner's, for an exercise about recordings.
        arch: The architecture that the PTX machine simulates, one of simt.TARGETS. None stands for the exercise's.

    Raises:
        Usage: The device or the recording does not fit the exercise, or there is no file.
        spec.DeclarationError: The exercise's declaration is wrong.
    """
    with Session(item, submission, device=device, recording=recording, arch=arch) as session:
        return session(seed=seed, report_progress=report_progress, bench=bench, brief=brief, timed=timed)


class Session:
    """Grades one file as often as it is called, each time in a fresh worker. It is a context manager.

    Args:
        item, submission, device, recording, arch: See `grade`.
        warm: Whether to start the next worker before it is needed.
        hidden: Folders whose files the submission must not use, besides solutions/.
        keep: Whether to keep compilers' output for the next session.
        home: The folder that the report's paths are relative to, instead of the checkout.
    """

    def __init__(
        self,
        item: Item,
        submission: Path,
        *,
        device: Device = "auto",
        warm: bool = False,
        hidden: Sequence[Path] = (),
        keep: bool = True,
        home: Path | None = None,
        recording: Path | None = None,
        arch: str | None = None,
    ) -> None:
        self.item = item
        path = submission.absolute()
        declaration = on_recording(registry.load(item), recording)
        self.device = devices.resolve(device)
        target = devices.choose_target(declaration, self.device, arch)
        self.exercise, substitutions = devices.adapt_exercise(declaration, self.device, target)
        self.workers = Workers(item, self.exercise, path, self.device, target.name, hidden, keep)
        home = home.absolute() if home else item.root
        self.submission = Submission(item, self.exercise, path, self.device, target, self.workers, home, substitutions)
        self._warm = warm
        self._prepare()

    def __call__(
        self,
        *,
        seed: int | None = None,
        report_progress: Progress | None = None,
        bench: bool = False,
        brief: bool = False,
        timed: bool = True,
    ) -> Report:
        """Grade the file as it is now. See `grade`."""
        if not self.submission.path.exists():
            raise Usage(f"there is no file {self.submission.path}; `kp reset {self.item.name}` restores the stub")
        seed = random.SystemRandom().randrange(1 << 32) if seed is None else seed
        grading = GradingRun(self.submission, seed, report_progress or (lambda _: None), brief)
        try:
            return grading.report(bench, timed)
        finally:
            grading.close()
            self._prepare()

    def heaviest_launch(
        self, *, seed: int = 0, report_progress: Progress | None = None
    ) -> device_messages.LaunchProfile:
        """Return the launch of the largest case that executed most instructions.

        It has the counters by line, and the addresses of one warp. This needs device="cpu".

        Raises:
            Usage: The submission launches nothing.
            NothingToDraw: The submission fails.
        """
        grading = GradingRun(self.submission, seed, report_progress or (lambda _: None))
        try:
            return grading.heaviest_launch()
        finally:
            grading.close()

    def record_launch(self, *, seed: int = 0, report_progress: Progress | None = None) -> RecordedLaunch:
        """Return a launch with the events of the warps of its first block.

        The launch is of the first case that fails, or of the largest case if none does. This needs device="cpu".

        Raises:
            NothingToDraw: Nothing is launched.
        """
        grading = GradingRun(self.submission, seed, report_progress or (lambda _: None))
        try:
            return grading.record_launch()
        finally:
            grading.close()

    def logs(self, cases: Sequence[Case], *, seed: int = 0, report_progress: Progress | None = None) -> list[Log]:
        """Return the steps of the ranks of an exercise on several ranks in each of these cases.

        Raises:
            NothingToDraw: A case fails.
        """
        grading = GradingRun(self.submission, seed, report_progress or (lambda _: None))
        try:
            return grading.logs(cases)
        finally:
            grading.close()

    def _prepare(self) -> None:
        if self._warm:
            self.workers.prepare()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.workers.close()
