"""The orchestrator: holds the worker and the clock, compares, and decides. It never imports a submission."""

from __future__ import annotations

import platform
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Literal

import torch

from kernelpath import packages
from kernelpath.course import registry, stubs
from kernelpath.course.problem import Case
from kernelpath.course.registry import Item
from kernelpath.device import gpu
from kernelpath.device import messages as device_messages
from kernelpath.grading import compare, conduct, measure, traffic
from kernelpath.grading.conduct import Evidence
from kernelpath.grading.kinds import Kind, kind_of
from kernelpath.grading.truth import derive, draw_inputs, drawn_cases, expected_outputs, output_dtype
from kernelpath.verdict import CaseResult, Complaint, LineTraffic, Measurement, Report, Verdict
from kernelpath.work import messages
from kernelpath.work.host import Machines, Worker
from kernelpath.work.runner import Runner, Stopped, Usage
from kernelpath.work.workspace import Workspace

__all__ = ["Device", "Progress", "Session", "Usage", "device_name", "grade", "resolve_device", "versions"]

Device = Literal["auto", "cpu", "cuda"]
Progress = Callable[[str], None]

PROFILE_SECONDS = 60.0
"""For a profiler that is loaded and a call."""

OLDEST = (7, 5)
"""The least compute capability that the compilers of CUDA 13 still know."""

SMALL = 0.25
"""The share of the largest case's bytes up to which a case is run a third time."""

PTX_MACHINE = (8, 0)
"""The compute capability that the PTX machine has."""

_FAULTS = (Verdict.OUT_OF_BOUNDS, Verdict.UNINITIALIZED, Verdict.RACE, Verdict.BARRIER)
"""Complaints of the PTX machine that hold on any GPU, also where the result came out right."""

_BY_A_KERNEL = (Verdict.WRONG_VALUES, Verdict.NOT_WRITTEN, Verdict.MUTATED_INPUT, Verdict.OUT_OF_BOUNDS)
"""What a kernel does rather than its launch."""

_SYMPTOMS = (*_BY_A_KERNEL, Verdict.CRASHED, Verdict.TIMED_OUT)
"""What a GPU shows of a fault whose cause and line the PTX machine can tell."""

_ONCE_MORE = -1
"""In place of a case's index, to draw other values."""

_ENDS_GRADING = (
    Verdict.NOT_STARTED,
    Verdict.COMPILE_ERROR,
    Verdict.TIMED_OUT,
    Verdict.TAMPERED,
    Verdict.UNAVAILABLE,
)


def grade(
    item: Item,
    submission: Path,
    *,
    device: Device = "auto",
    seed: int | None = None,
    report_progress: Progress | None = None,
    bench: bool = False,
) -> Report:
    """Grade the Python file `submission` as the exercise `item`.

    device: "auto" takes the GPU where there is one. seed: draws sizes and inputs; a fresh one if None.
    bench: take every round of a measurement. Raises Usage and spec.DeclarationError.
    """
    with Session(item, submission, device=device) as check:
        return check(seed=seed, report_progress=report_progress, bench=bench)


class NotDrawn(Exception):
    """The submission does not run, so there is no picture of it. The message says how it ended."""


class Session:
    """Grades one file as often as it is called, each time in a fresh worker.

    warm: start the next worker before it is needed. hidden: folders whose files the submission must not use, besides
    solutions/. Use as a context manager.
    """

    def __init__(
        self,
        item: Item,
        submission: Path,
        *,
        device: Device = "auto",
        warm: bool = False,
        hidden: Sequence[Path] = (),
    ) -> None:
        self.item = item
        self.submission = submission.absolute()
        self.exercise = registry.load(item)
        self.device = resolve_device(device)
        self.hidden = hidden
        self._warm = warm
        self._machines = Machines()
        self._waiting: list[Worker] = []
        self._start_waiting()

    def __call__(
        self, *, seed: int | None = None, report_progress: Progress | None = None, bench: bool = False
    ) -> Report:
        """Grade the file as it is now."""
        if not self.submission.is_file():
            raise Usage(f"there is no file {self.submission}; `kp reset {self.item.name}` brings the stub back")
        seed = random.SystemRandom().randrange(1 << 32) if seed is None else seed
        grading = _Grading(self, seed, report_progress or (lambda _: None))
        try:
            return grading.report(bench)
        finally:
            grading.close()
            self._start_waiting()

    def heaviest(self, *, seed: int = 0, report_progress: Progress | None = None) -> device_messages.Drawn:
        """The launch of the largest case that executed most, with its counters by line and one warp's addresses.

        Needs device="cpu". Raises Usage where there is nothing to draw, with the reason, and
        NotDrawn where it does not run.
        """
        grading = _Grading(self, seed, report_progress or (lambda _: None))
        try:
            return grading.heaviest()
        finally:
            grading.close()

    def runner(self, device: Literal["cpu", "cuda"]) -> Runner:
        """The submission, to be loaded on that device."""
        machines = self._machines if kind_of(self.exercise, device).on_machine else None
        return Runner(lambda: self._take_worker(device), self._copy, self.hidden, device, machines)

    @property
    def _workspace(self) -> Workspace:
        return Workspace(self.submission)

    def _copy(self) -> Path:
        """The submission as it is graded. Of the reference kernels each is alone."""
        return self._workspace.copy(alone=self.submission.is_relative_to(self.item.root / "solutions"))

    def _take_worker(self, device: Literal["cpu", "cuda"]) -> Worker:
        """A worker without a submission: the one that waits, where it was started for this device."""
        return self._waiting.pop(0) if device == self.device and self._waiting else self._started(device)

    def _start_waiting(self) -> None:
        """As many as a grading takes, if it is to find them ready."""
        wanted = (2 if kind_of(self.exercise, self.device).on_machine else 1) if self._warm else 0
        while len(self._waiting) < wanted:
            self._waiting.append(self._started(self.device))

    def _started(self, device: Literal["cpu", "cuda"]) -> Worker:
        worker = Worker()
        machine = self._machines.take() if kind_of(self.exercise, device).on_machine else None
        worker.start(str(self.item.root), self.item.stem, device, machine, self._workspace)
        return worker

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._waiting:
            worker.close()
        self._machines.drop()
        self._workspace.clean()


@dataclass(frozen=True)
class _Graded:
    """A case's end, with what was seen of it."""

    result: CaseResult
    evidence: Evidence | None = None


class _Grading:
    """One submission, once.

    On the PTX machine a second process, the same before its first call, gets other values and another order of warps
    and blocks, and must launch the same. Beside a GPU the machine runs the largest case meanwhile, for its counters and
    for this comparison, and then the first case that failed.
    """

    def __init__(self, session: Session, seed: int, progress: Progress) -> None:
        self.session, self.seed, self.progress = session, seed, progress
        self.item, self.exercise, self.device = session.item, session.exercise, session.device
        self._kind = kind_of(self.exercise, self.device)
        self._runner = session.runner(self.device)
        self._twin = session.runner("cpu") if self._kind.on_machine else None
        runs_there = self.exercise.is_kernel and (self.exercise.requires or PTX_MACHINE) <= PTX_MACHINE
        self._beside = _Beside(self) if self.device == "cuda" and runs_there else None
        self._largest = max(self.exercise.cases, key=lambda case: self.exercise.bytes_moved(**case))
        self._begun = time.monotonic()

    def report(self, bench: bool) -> Report:
        """Every case, then traffic, then time; the first complaint is the verdict."""
        graded: list[_Graded] = []
        lines: tuple[LineTraffic, ...] = ()
        measurement: Measurement | None = None
        disturbed: tuple[str, ...] = ()
        complaint = self._capability()
        if complaint is None:
            if self._beside is not None:
                self._beside.begin(self._largest)
            graded = self._cases()
            complaint = next((_complaint_of(g.result) for g in graded if not g.result.verdict.passed), None)
        if complaint is None and self.device == "cuda" and self.exercise.is_kernel:
            complaint = self._profile()
        if complaint is None:
            lines, complaint = self._traffic(graded)
        if complaint is None and self.device == "cuda" and self.exercise.baseline is not None:
            measurement, complaint = self._measurement(bench)
            disturbed = self._neighbours()
        self.close()
        verdict = complaint.verdict if complaint else Verdict.PASSED
        blamed = self._shown(complaint.file) if complaint else ""
        return Report(
            exercise=self.item.stem,
            title=self.item.title,
            submission=self._shown(str(self.session.submission)),
            device=device_name(self.device),
            seed=self.seed,
            verdict=verdict,
            cause=complaint.cause if complaint else "",
            file=blamed,
            line=complaint.line if complaint else 0,
            stars=measure.stars(measurement, verdict),
            next_step=verdict.then.format(file=blamed or self._suspect(verdict), name=self.item.name, seed=self.seed),
            not_measured=measure.not_measured(self.exercise, measurement, verdict) + disturbed,
            cases=tuple(g.result for g in graded),
            traffic=lines,
            measurement=measurement,
            printed=self._runner.printed,
            versions=versions(),
            seconds=time.monotonic() - self._begun,
        )

    def heaviest(self) -> device_messages.Drawn:
        """The largest case's heaviest launch."""
        self.progress("running on the PTX machine")
        try:
            self._kind.call(self._runner, self._largest, derive(self.seed, "picture"))
            drawn = self._runner.ask_machine(device_messages.Draw(self._runner.client), device_messages.Drawn)
        except Stopped as stopped:
            told = f"{stopped.complaint.verdict.value}: {stopped.complaint.cause}"
            raise NotDrawn(told) from None
        if drawn is None:
            raise Usage(f"{self.item.name} launches no kernel, so there is nothing to draw")
        return drawn

    def close(self) -> None:
        """End the processes and keep what they printed."""
        for runner in (self._runner, self._twin, self._beside):
            if runner is not None:
                runner.close()

    def _capability(self) -> Complaint | None:
        if reason := packages.lacking(self.item.lane):
            return Complaint(Verdict.UNAVAILABLE, reason)
        needed = max(self.exercise.requires or OLDEST, OLDEST)
        found = torch.cuda.get_device_capability() if self.device == "cuda" else PTX_MACHINE
        if found >= needed:
            return None
        machine = "this GPU" if self.device == "cuda" else "the PTX machine"
        reason = f"needs sm_{needed[0]}{needed[1]}, {machine} has sm_{found[0]}{found[1]}; not run"
        return Complaint(Verdict.UNAVAILABLE, reason)

    def _cases(self) -> list[_Graded]:
        cases = [*self.exercise.cases, *drawn_cases(self.exercise, self.seed)]
        if self._twin is not None:
            self._runner.prepare()
            self._twin.prepare()
        graded: list[_Graded] = []
        for index, case in enumerate(cases):
            self.progress(f"case {index + 1} of {len(cases)}")
            first_to_fail = all(earlier.result.verdict.passed for earlier in graded)
            graded.append(self._case(self._runner, case, index, explain=first_to_fail))
            if graded[-1].result.verdict in _ENDS_GRADING or self._runner.hopeless:
                break
        if self._twin is not None and all(one.result.verdict.passed for one in graded):
            self._compare_with_twin(self._twin, cases, graded)
        return graded

    def _compare_with_twin(self, twin: Runner, cases: Sequence[Case], graded: list[_Graded]) -> None:
        """Every case in the second process, with other values: right again, and launched with the same."""
        for index, case in enumerate(cases):
            self.progress(f"case {index + 1} once more, with other values")
            again = self._case(twin, case, len(cases) + index, explain=True, like=graded[index].evidence)
            if not again.result.verdict.passed:
                graded[index] = again
                return
        for index in self._small(cases):
            self.progress(f"case {index + 1}, whose size has been seen before")
            again = self._case(twin, cases[index], 2 * len(cases) + index, explain=True)
            if not again.result.verdict.passed:
                graded[index] = again
                return

    def _small(self, cases: Sequence[Case]) -> list[int]:
        """The cases that cost little: what is kept from a call and must not be shows at any size that comes again."""
        sizes = [self.exercise.bytes_moved(**case) for case in cases]
        return [index for index, size in enumerate(sizes) if size <= SMALL * max(sizes)]

    def _case(self, runner: Runner, case: Case, index: int, explain: bool, like: Evidence | None = None) -> _Graded:
        """Run one case and compare. explain: let the PTX machine tell the cause of what fails on a GPU.

        like: what another process launched for other values. Then warps and blocks run in the opposite order, too.
        """
        begun = time.monotonic()
        evidence, complaint = self._tried(self._kind, runner, case, index, like)
        if explain and self._beside is not None and complaint is not None and complaint.verdict in _SYMPTOMS:
            complaint = self._explained(case, index, complaint)
        if complaint is not None and complaint.verdict in _BY_A_KERNEL:
            complaint = self._empty_kernel() or complaint
        seconds = time.monotonic() - begun
        if complaint is None:
            return _Graded(CaseResult(case, Verdict.PASSED, seconds=seconds), evidence)
        file = self._shown(complaint.file)
        return _Graded(CaseResult(case, complaint.verdict, complaint.cause, file, complaint.line, seconds), evidence)

    def _explained(self, case: Case, index: int, complaint: Complaint) -> Complaint:
        """The PTX machine's complaint about a case that failed on the GPU, where that says more."""
        self.progress("looking for the cause on the PTX machine")
        runner = self.session.runner("cpu")
        try:
            _, cause = self._tried(kind_of(self.exercise, "cpu"), runner, case, index)
        finally:
            runner.close()
        if cause is None or cause.verdict not in (complaint.verdict, *_FAULTS):
            return complaint
        return cause

    def _tried(
        self, kind: Kind, runner: Runner, case: Case, index: int, like: Evidence | None = None
    ) -> tuple[Evidence | None, Complaint | None]:
        """What was seen of a case, and what is wrong with it."""
        seed = derive(self.seed, index)
        try:
            evidence = kind.call(runner, case, seed, reverse=like is not None)
            complaint = self._judged(evidence, draw_inputs(self.exercise, case, seed, runner.device))
            if complaint is None and like is not None:
                complaint = conduct.difference(like, evidence, self.exercise.entry)
            if complaint is not None and complaint.element is not None:
                complaint = kind.with_writer(runner, evidence, complaint, self.item.lane)
        except Stopped as stopped:
            return None, self._placed(stopped.complaint)
        return evidence, self._placed(complaint)

    def _judged(self, evidence: Evidence, inputs: Sequence[object]) -> Complaint | None:
        if evidence.complaint is not None:
            return evidence.complaint
        expected = expected_outputs(self.exercise, inputs)
        if len(evidence.outputs) != len(expected):
            cause = f"{self.exercise.entry} returned {len(evidence.outputs)} tensors, expected {len(expected)}"
            return Complaint(Verdict.WRONG_TYPE, cause)
        dtype = output_dtype(self.exercise, inputs)
        complaint = compare.judge(evidence.outputs, expected, self.exercise.tolerance, dtype)
        comparable = complaint is None or complaint.verdict is Verdict.WRONG_VALUES
        if comparable and self.exercise.check is not None and (said := self.exercise.check(inputs, evidence.outputs)):
            return Complaint(Verdict.WRONG_VALUES, said)
        return complaint

    def _placed(self, complaint: Complaint | None) -> Complaint | None:
        """The complaint about a file beside the submission, with the whole path to it."""
        if complaint is None:
            return None
        if complaint.file:
            return replace(complaint, file=str(self.session.submission.with_name(Path(complaint.file).name)))
        return replace(complaint, file=str(self.session.submission)) if complaint.line else complaint

    def _traffic(self, graded: Sequence[_Graded]) -> tuple[tuple[LineTraffic, ...], Complaint | None]:
        """The largest case's counters, and the first limit that they break."""
        if self.device == "cuda":
            if self._beside is None:
                return (), None
            self.progress("counting traffic on the PTX machine")
            lines, complaint = self._beside.counted()
            if complaint is not None:
                return (), self._placed(complaint)
            case = self._largest
        else:
            largest = max(graded, key=lambda g: self.exercise.bytes_moved(**g.result.case))
            lines, case = largest.evidence.traffic if largest.evidence else (), largest.result.case
        compulsory = self.exercise.bytes_moved(**case)
        complaint = traffic.traffic_complaint(lines, self.exercise.traffic, compulsory, case)
        if complaint is not None and self.device == "cpu":
            # what a first call tries out, as autotuning does, is no cost
            again = self._case(self._runner, case, _ONCE_MORE, explain=False).evidence
            lines = again.traffic if again is not None and again.traffic else lines
            complaint = traffic.traffic_complaint(lines, self.exercise.traffic, compulsory, case)
        return lines, self._placed(complaint)

    def _profile(self) -> Complaint | None:
        """Which kernels the GPU ran, at the size that is timed where there is one."""
        case = self.exercise.bench or self._largest
        asked = messages.Profile(case=dict(case), seed=derive(self.seed, "profile"))
        try:
            profiled = self._runner.ask(asked, messages.Profiled, PROFILE_SECONDS)
        except Stopped as stopped:
            return stopped.complaint
        return conduct.library_share(profiled.kernels, profiled.launches)

    def _measurement(self, bench: bool) -> tuple[Measurement | None, Complaint | None]:
        try:
            reference = self.item.files("solutions")
            conduct = self._kind.conduct
            return measure.measure(
                self.exercise, self._runner, conduct, self.seed, self.progress, bench, reference=reference
            )
        except Stopped as stopped:
            return None, stopped.complaint

    def _neighbours(self) -> tuple[str, ...]:
        found = gpu.neighbours(self._runner.pids, gpu.gpu_id())
        return tuple(f"an undisturbed time: {one.told}" for one in found)

    def _empty_kernel(self) -> Complaint | None:
        """A launch of a kernel that is still the stub's."""
        source = self.session.submission.with_suffix(".cu")
        line = stubs.empty_kernel(source.read_text(encoding="utf-8")) if source.is_file() else 0
        if not line:
            return None
        return Complaint(Verdict.NOT_STARTED, "the kernel is launched, but writes nothing yet", str(source), line)

    def _suspect(self, verdict: Verdict) -> str:
        """What to fix where the complaint names no file."""
        source = self.session.submission.with_suffix(".cu")
        if verdict in _BY_A_KERNEL and source.is_file():
            return f"{self._shown(str(source))}, or its launch in the .py"
        return self._shown(str(self.session.submission))

    def _shown(self, file: str) -> str:
        """A path as the learner would type it: relative to the checkout where it lies inside."""
        if not file:
            return ""
        path = Path(file)
        return str(path.relative_to(self.item.root)) if path.is_relative_to(self.item.root) else file


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


def versions() -> dict[str, str]:
    """Of Python and of the packages that a verdict may depend on; those that are installed."""
    found = {"python": platform.python_version()}
    for package in ("kernelpath", "torch", "triton", "cuda-bindings", "nvidia-cuda-nvrtc", "nvidia-cutlass-dsl"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _complaint_of(result: CaseResult) -> Complaint:
    return Complaint(result.verdict, result.cause, result.file, result.line)


class _Beside:
    """The largest case on the PTX machine, while the GPU is busy with the others."""

    def __init__(self, grading: _Grading) -> None:
        self._grading = grading
        self._runners = [grading.session.runner("cpu") for _ in range(2)]
        self._found: Future[tuple[tuple[LineTraffic, ...], Complaint | None]] | None = None

    def begin(self, case: Case) -> None:
        for runner in self._runners:
            runner.prepare()
        pool = ThreadPoolExecutor(1)
        self._found = pool.submit(self._both, case)
        pool.shutdown(wait=False)

    def counted(self) -> tuple[tuple[LineTraffic, ...], Complaint | None]:
        """Counters, or a complaint that holds on any GPU; waits for it."""
        assert self._found is not None
        return self._found.result()

    def close(self) -> None:
        for runner in self._runners:
            runner.close()

    def _both(self, case: Case) -> tuple[tuple[LineTraffic, ...], Complaint | None]:
        grading, kind = self._grading, kind_of(self._grading.exercise, "cpu")
        first: Evidence | None = None
        for runner, what in zip(self._runners, ("counting", "comparing"), strict=True):
            try:
                evidence = kind.call(runner, case, derive(grading.seed, what), reverse=first is not None)
            except Stopped as stopped:
                return (), stopped.complaint if stopped.complaint.verdict in _FAULTS else None
            if evidence.complaint is not None:
                return (), evidence.complaint
            if first is not None and (complaint := conduct.difference(first, evidence, grading.exercise.entry)):
                return (), complaint
            first = evidence
        return first.traffic if first else (), None
