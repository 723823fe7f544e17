"""The orchestrator: holds the worker and the clock, compares, and decides. It never imports a submission."""

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
from kernelpath.grading.launch_recording import NotDrawn, Recorded
from kernelpath.grading.submission import Submission
from kernelpath.grading.workers import Workers
from kernelpath.packages import versions
from kernelpath.verdict import Report
from kernelpath.work.runner import Usage

__all__ = ["Device", "NotDrawn", "Progress", "Session", "Usage", "grade", "versions"]


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

    device: "auto" takes the GPU where there is one. seed: draws sizes and inputs; a fresh one if None.
    bench: take every round of a measurement. brief: after a case that decides on the verdict, run no others for what
    they have in common with it. timed: measure the speed, on a GPU. recording: a folder in place of ours, for a trace.
    arch: what the PTX machine stands for, one of simt.TARGETS, where that is not what the exercise declares.
    Raises Usage and spec.DeclarationError.
    """
    with Session(item, submission, device=device, recording=recording, arch=arch) as check:
        return check(seed=seed, report_progress=report_progress, bench=bench, brief=brief, timed=timed)


class Session:
    """Grades one file as often as it is called, each time in a fresh worker.

    warm: start the next worker before it is needed. hidden: folders whose files the submission must not use, besides
    solutions/. keep: leave what compilers made for the next session. home: the folder that the report's paths are told
    from, in place of the checkout. recording, arch: as in `grade`. A context manager.
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
        self._path = submission.absolute()
        declared = on_recording(registry.load(item), recording)
        self.device = devices.resolve(device)
        target = devices.target(declared, self.device, arch)
        self.exercise, instead = devices.suited(declared, self.device, target)
        self.workers = Workers(item, self.exercise, self._path, self.device, target.name, hidden, keep)
        home = home.absolute() if home else item.root
        self.submission = Submission(item, self.exercise, self._path, self.device, target, self.workers, home, instead)
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
        """Grade the file as it is now."""
        if not self._path.exists():
            raise Usage(f"there is no file {self._path}; `kp reset {self.item.name}` restores the stub")
        seed = random.SystemRandom().randrange(1 << 32) if seed is None else seed
        grading = GradingRun(self.submission, seed, report_progress or (lambda _: None), brief)
        try:
            return grading.report(bench, timed)
        finally:
            grading.close()
            self._prepare()

    def heaviest(self, *, seed: int = 0, report_progress: Progress | None = None) -> device_messages.Drawn:
        """The launch of the largest case that executed most, with its counters by line and one warp's addresses.

        Needs device="cpu". Raises Usage where there is nothing to draw, with the reason, and
        NotDrawn where it does not run.
        """
        grading = GradingRun(self.submission, seed, report_progress or (lambda _: None))
        try:
            return grading.heaviest()
        finally:
            grading.close()

    def recorded(self, *, seed: int = 0, report_progress: Progress | None = None) -> Recorded:
        """A launch with what the warps of its first block did, of the first case that fails, else of the largest.

        Needs device="cpu". Raises NotDrawn where nothing is launched.
        """
        grading = GradingRun(self.submission, seed, report_progress or (lambda _: None))
        try:
            return grading.recorded()
        finally:
            grading.close()

    def logs(self, cases: Sequence[Case], *, seed: int = 0, report_progress: Progress | None = None) -> list[Log]:
        """What the ranks of an exercise on several ranks did in each of these cases. Raises NotDrawn."""
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
