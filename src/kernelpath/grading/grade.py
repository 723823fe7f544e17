"""The orchestrator: holds the worker and the clock, compares, and decides. It never imports a submission."""

from __future__ import annotations

import platform
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import torch

from kernelpath import packages, words
from kernelpath.course import registry
from kernelpath.course.registry import Item
from kernelpath.device import gpu
from kernelpath.device import messages as device_messages
from kernelpath.grading import conduct, far, measure, profile, traffic
from kernelpath.grading.beside import Beside
from kernelpath.grading.cases import Cases, Graded, most_telling
from kernelpath.grading.kinds import kind_of
from kernelpath.grading.kinds.trace import on_recording
from kernelpath.grading.subject import Subject
from kernelpath.grading.truth import derive
from kernelpath.grading.workers import Workers
from kernelpath.packages import versions
from kernelpath.verdict import Complaint, LineTraffic, Measurement, Report, Verdict
from kernelpath.work import messages
from kernelpath.work.runner import Stopped, Usage

__all__ = ["Device", "Progress", "Session", "Usage", "device_name", "grade", "resolve_device", "versions"]

Device = Literal["auto", "cpu", "cuda"]
Progress = Callable[[str], None]

OLDEST = (7, 5)
"""The least compute capability that the compilers of CUDA 13 still know."""

PTX_MACHINE = (8, 0)
"""The compute capability that the PTX machine has."""

_ONCE_MORE = -1
"""In place of a case's index, to draw other values."""


def grade(
    item: Item,
    submission: Path,
    *,
    device: Device = "auto",
    seed: int | None = None,
    report_progress: Progress | None = None,
    bench: bool = False,
    recording: Path | None = None,
) -> Report:
    """Grade the Python file `submission` as the exercise `item`.

    device: "auto" takes the GPU where there is one. seed: draws sizes and inputs; a fresh one if None. bench: take
    every round of a measurement. recording: a folder in place of ours. Raises Usage and spec.DeclarationError.
    """
    with Session(item, submission, device=device, recording=recording) as check:
        return check(seed=seed, report_progress=report_progress, bench=bench)


class NotDrawn(Exception):
    """The submission does not run, so there is no picture of it. The message says how it ended."""


class Session:
    """Grades one file as often as it is called, each time in a fresh worker.

    warm: start the next worker before it is needed. hidden: folders whose files the submission must not use, besides
    solutions/. keep: leave what compilers made for the next session. recording: as in `grade`. A context manager.
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
        recording: Path | None = None,
    ) -> None:
        self.item, self.submission = item, submission.absolute()
        self.exercise = on_recording(registry.load(item), recording)
        self.device = resolve_device(device)
        self.workers = Workers(item, self.exercise, self.submission, self.device, hidden, keep)
        self.subject = Subject(item, self.exercise, self.submission, self.device, self.workers)
        self._warm = warm
        self._prepare()

    def __call__(
        self, *, seed: int | None = None, report_progress: Progress | None = None, bench: bool = False
    ) -> Report:
        """Grade the file as it is now."""
        if not self.submission.exists():
            raise Usage(f"there is no file {self.submission}; `kp reset {self.item.name}` restores the stub")
        seed = random.SystemRandom().randrange(1 << 32) if seed is None else seed
        grading = _Grading(self, seed, report_progress or (lambda _: None))
        try:
            return grading.report(bench)
        finally:
            grading.close()
            self._prepare()

    def heaviest(self, *, seed: int = 0, report_progress: Progress | None = None) -> device_messages.Drawn:
        """The launch of the largest case that executed most, with its counters by line and one warp's addresses.

        Needs device="cpu". Raises Usage where there is nothing to draw, and NotDrawn where it does not run.
        """
        grading = _Grading(self, seed, report_progress or (lambda _: None))
        try:
            return grading.heaviest()
        finally:
            grading.close()

    def _prepare(self) -> None:
        if self._warm:
            self.workers.prepare()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.workers.close()


class _Grading:
    """One submission, once.

    On the PTX machine a second process, the same before its first call, gets other values and another order of warps
    and blocks, and must launch the same. Beside a GPU the machine runs the largest case meanwhile, for its counters and
    for this comparison, and then the first case that failed.
    """

    def __init__(self, session: Session, seed: int, progress: Progress) -> None:
        self.subject, self.seed, self.progress = session.subject, seed, progress
        self.item, self.exercise, self.device = session.item, session.exercise, session.device
        self._kind, self._copied = kind_of(self.exercise, self.device), session.workers.copy()
        self._runner = session.workers.runner(self.device)
        self._twin = session.workers.runner("cpu") if self._kind.twin else None
        runs_there = self.exercise.is_kernel and (self.exercise.requires or PTX_MACHINE) <= PTX_MACHINE
        beside = self.device == "cuda" and runs_there
        self._beside = Beside(self.subject, seed) if beside else None
        self._on_machine = self._beside.runner if self._beside else self._runner if self._kind.on_machine else None
        self._cases = Cases(self.subject, seed, progress, self._runner, self._twin, explain=beside)
        self._largest = self.exercise.largest
        self._begun = time.monotonic()

    def report(self, bench: bool) -> Report:
        """Every case, then traffic, then time; the first complaint is the verdict."""
        graded: list[Graded] = []
        lines: tuple[LineTraffic, ...] = ()
        measurement: Measurement | None = None
        unsaid: tuple[str, ...] = ()
        complaint = self._capability()
        if complaint is None:
            if self._beside is not None:
                self._beside.begin(self._largest)
            graded = self._cases.run()
            complaint = most_telling(graded)
        if complaint is None and self.device == "cuda" and self.exercise.is_kernel:
            complaint = self._profile(graded)
        if complaint is None:
            lines, complaint = self._traffic(graded)
        if complaint is None:
            self.progress("offsets past 2^31")
            found, unsaid = far.graded(self.subject, self._on_machine, self.seed)
            graded += found
            complaint = most_telling(found)
        if complaint is None and self.device == "cuda" and self.exercise.baseline is not None:
            measurement, complaint = self._measurement(bench)
            unsaid += self._neighbors()
        self.close()
        verdict = complaint.verdict if complaint else Verdict.PASSED
        blamed = self.subject.shown(complaint.file) if complaint else ""
        return Report(
            exercise=self.item.stem,
            title=self.item.title,
            submission=self.subject.shown(str(self.subject.submission)),
            device=device_name(self.device),
            seed=self.seed,
            verdict=verdict,
            cause=words.shown(complaint.cause) if complaint else "",
            file=blamed,
            line=complaint.line if complaint else 0,
            stars=measure.stars(measurement, verdict),
            next_step=(complaint.step if complaint else verdict.then).format(
                file=blamed or self.subject.suspect(verdict), name=self.item.name, seed=self.seed
            ),
            not_measured=measure.not_measured(self.exercise, measurement, verdict)
            + (self._beside.not_counted if self._beside else ())
            + unsaid
            + measure.UNCONFINED,
            cases=tuple(g.result for g in graded),
            traffic=lines,
            measurement=measurement,
            printed=self._runner.printed,
            versions=versions(),
            graded=self._copied.digests,
            seconds=time.monotonic() - self._begun,
        )

    def heaviest(self) -> device_messages.Drawn:
        """The largest case's heaviest launch."""
        self.progress("running on the PTX machine")
        try:
            self._kind.call(self._runner, self._largest, derive(self.seed, "picture"))
            drawn = self._runner.ask_machine(device_messages.Draw(self._runner.client), device_messages.Drawn)
        except Stopped as stopped:
            raise NotDrawn(f"{stopped.complaint.verdict.value}: {stopped.complaint.cause}") from None
        if drawn is None:
            raise Usage(f"{self.item.name} launches no kernel, so there is nothing to draw")
        return drawn

    def close(self) -> None:
        """End the processes and keep what they printed."""
        for runner in (self._runner, self._twin, self._beside):
            if runner is not None:
                runner.close()

    def _capability(self) -> Complaint | None:
        if self._copied.unusable:
            return Complaint(Verdict.COMPILE_ERROR, self._copied.unusable, str(self.subject.submission))
        if reason := packages.lacking(self.item.lane):
            return Complaint(Verdict.UNAVAILABLE, reason)
        needed = max(self.exercise.requires or OLDEST, OLDEST)
        found = torch.cuda.get_device_capability() if self.device == "cuda" else PTX_MACHINE
        if found >= needed:
            return None
        has = f"{'this GPU' if self.device == 'cuda' else 'the PTX machine'} has sm_{found[0]}{found[1]}"
        return Complaint(Verdict.UNAVAILABLE, f"needs sm_{needed[0]}{needed[1]}, {has}; not run")

    def _traffic(self, graded: Sequence[Graded]) -> tuple[tuple[LineTraffic, ...], Complaint | None]:
        """The largest case's counters, and the first limit that a case breaks; the largest comes first."""
        if self._beside is not None:
            self.progress("counting traffic on the PTX machine")
            lines, complaint = self._beside.counted()
            if complaint is not None:
                return (), self.subject.placed(complaint)
            counted = [(self._largest, lines)]
        else:
            counted = sorted(((g.result.case, g.traffic) for g in graded), key=lambda one: one[0] is not self._largest)
        shown: tuple[LineTraffic, ...] = ()
        for case, lines in counted:
            complaint = traffic.complaint(self.exercise, case, lines)
            if complaint is not None and self.device == "cpu":
                # what a first call tries out, as autotuning does, is no cost
                lines = self._cases.one(self._runner, case, _ONCE_MORE, explain=False).traffic or lines
                complaint = traffic.complaint(self.exercise, case, lines)
            shown = shown or lines
            if complaint is not None:
                return lines, self.subject.placed(complaint)
        return shown, None

    def _profile(self, graded: Sequence[Graded]) -> Complaint | None:
        """Which kernels and operators the GPU ran."""
        self.progress("checking what the GPU runs")
        called = [operator for one in graded if one.evidence for operator in one.evidence.operators]
        try:
            return profile.complaint(self.exercise, self._runner, self._beside, self._largest, called, self.seed)
        except Stopped as stopped:
            return stopped.complaint

    def _measurement(self, bench: bool) -> tuple[Measurement | None, Complaint | None]:
        machine = self._beside.operators if self._beside else ()

        def seen(returned: messages.Returned, inputs: tuple[object, ...]) -> Complaint | None:
            known = conduct.foreign(returned.operators, machine, self.exercise.entry)
            return known or self._kind.conduct(returned, inputs)

        reference = self.item.files("solutions")
        contest = (self.exercise, self._runner, seen, self.seed, self.progress, bench)
        try:
            return measure.measure(*contest, reference=reference)
        except Stopped as stopped:
            return None, stopped.complaint

    def _neighbors(self) -> tuple[str, ...]:
        found = gpu.neighbors(self._runner.pids, gpu.gpu_id())
        return tuple(f"an undisturbed time: {one.told}" for one in found)


def resolve_device(device: Device) -> Literal["cpu", "cuda"]:
    """ "cpu" or "cuda". Raises Usage where a GPU is asked for and there is none."""
    if device != "cpu" and torch.cuda.is_available():
        return "cuda"
    if device == "cuda":
        raise Usage("there is no GPU that torch can use; kp doctor says why")
    return "cpu"


def device_name(device: str) -> str:
    if device == "cuda":
        return torch.cuda.get_device_name()
    return f"PTX machine on {platform.machine()}, no GPU"
