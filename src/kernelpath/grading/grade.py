"""The orchestrator: holds the worker and the clock, compares, and decides. It never imports a submission."""

from __future__ import annotations

import platform
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import torch

from kernelpath import packages
from kernelpath.course import registry, stubs
from kernelpath.course.registry import Item
from kernelpath.course.spec import Case
from kernelpath.device import gpu
from kernelpath.grading import compare, measure
from kernelpath.grading.truth import derive, draw_inputs, drawn_cases, expected_outputs, output_dtype, tensor_of
from kernelpath.verdict import CaseResult, Complaint, LineTraffic, Measurement, Report, Verdict
from kernelpath.work.process import Worker
from kernelpath.work.runner import Answer, Runner, Stopped, Usage

__all__ = ["Device", "Progress", "Session", "Usage", "device_name", "grade", "resolve_device", "versions"]

Device = Literal["auto", "cpu", "cuda"]
Progress = Callable[[str], None]

PROFILE_SECONDS = 60.0
"""For a profiler that is loaded and a call."""

OLDEST = (7, 5)
"""The least compute capability that the compilers of CUDA 13 still know."""

LIBRARY_SHARE = 0.1
"""The share of GPU time that kernels which are not the submission's own may take."""

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
        self._next = self._started(self.device) if warm else None

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
            if self._warm:
                self._next = self._started(self.device)

    def picture(self, *, seed: int = 0, report_progress: Progress | None = None) -> bytes:
        """A PNG of the file's source with its counters on the largest case, one warp's addresses and the banks.

        Needs device="cpu". Raises Usage where there is nothing to draw, with the reason, and
        NotDrawn where it does not run.
        """
        grading = _Grading(self, seed, report_progress or (lambda _: None))
        try:
            return grading.picture()
        finally:
            grading.close()

    def runner(self, device: Literal["cpu", "cuda"]) -> Runner:
        """The submission, to be loaded on that device."""
        return Runner(lambda: self._take_worker(device), self.submission, self.hidden)

    def _take_worker(self, device: str) -> Worker:
        """A worker without a submission: the one that waits, where it was started for this device."""
        if device == self.device and self._next is not None:
            worker, self._next = self._next, None
            return worker
        return self._started(device)

    def _started(self, device: str) -> Worker:
        worker = Worker()
        worker.post({"do": "start", "root": str(self.item.root), "stem": self.item.stem, "device": device})
        return worker

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        if self._next is not None:
            self._next.close()


@dataclass(frozen=True)
class _Graded:
    """A case's end, with what the traffic limits need of it."""

    result: CaseResult
    traffic: tuple[LineTraffic, ...] = ()


class _Grading:
    """One submission, once.

    Beside a GPU the PTX machine runs the largest case meanwhile, for its counters, and then the first that failed.
    """

    def __init__(self, session: Session, seed: int, progress: Progress) -> None:
        self.session, self.seed, self.progress = session, seed, progress
        self.item, self.exercise, self.device = session.item, session.exercise, session.device
        self._runner = session.runner(self.device)
        self._counting: Runner | None = None
        runs_there = self.exercise.is_kernel and (self.exercise.requires or PTX_MACHINE) <= PTX_MACHINE
        self._on_the_machine = self.device == "cuda" and runs_there
        self._largest = max(self.exercise.cases, key=lambda case: self.exercise.bytes_moved(**case))
        self._given: set[str] = set()
        self._begun = time.monotonic()

    def report(self, bench: bool) -> Report:
        """Every case, then traffic, then time; the first complaint is the verdict."""
        graded: list[_Graded] = []
        traffic: tuple[LineTraffic, ...] = ()
        measurement: Measurement | None = None
        disturbed: tuple[str, ...] = ()
        complaint = self._capability()
        if complaint is None:
            self._count_meanwhile()
            graded = self._cases()
            complaint = next((_complaint_of(g.result) for g in graded if not g.result.verdict.passed), None)
        if complaint is None and self.device == "cuda" and self.exercise.is_kernel:
            complaint = self._profile()
        if complaint is None:
            traffic, complaint = self._traffic(graded)
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
            traffic=traffic,
            measurement=measurement,
            printed=self._runner.printed,
            versions=versions(),
            seconds=time.monotonic() - self._begun,
        )

    def picture(self) -> bytes:
        """The PNG of the largest case's heaviest launch."""
        self.progress("running on the PTX machine")
        try:
            message = {"do": "picture", "case": dict(self._largest), "seed": derive(self.seed, "picture")}
            _, pictures = self._ask(message)
        except Stopped as stopped:
            told = f"{stopped.complaint.verdict.value}: {stopped.complaint.cause}"
            raise NotDrawn(told) from None
        if not pictures:
            raise Usage(f"{self.item.name} launches no kernel, so there is nothing to draw")
        return pictures[0]

    def close(self) -> None:
        """End the processes and keep what they printed."""
        self._runner.close()
        if self._counting is not None:
            self._counting.close()

    def _ask(self, message: Mapping[str, Any], seconds: float | None = None) -> Answer:
        try:
            return self._runner.ask(message, seconds)
        except Stopped as stopped:
            if self.device == "cuda" and stopped.complaint.verdict in (Verdict.CRASHED, Verdict.TIMED_OUT):
                self._runner.close()  # a device error leaves a context in which nothing works
                torch.cuda.synchronize()
            raise

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
        graded: list[_Graded] = []
        for index, case in enumerate(cases):
            self.progress(f"case {index + 1} of {len(cases)}")
            first_to_fail = all(earlier.result.verdict.passed for earlier in graded)
            graded.append(self._case(case, index, explain=first_to_fail))
            if graded[-1].result.verdict in _ENDS_GRADING or self._runner.hopeless:
                break
        measured = self.device == "cuda" and self.exercise.baseline is not None  # on new values in each round
        if self.exercise.is_kernel and not measured and all(one.result.verdict.passed for one in graded):
            self._repeat(cases, graded)
        return graded

    def _repeat(self, cases: Sequence[Case], graded: list[_Graded]) -> None:
        """Run every case with other values: no kernel may be given then what it was not given before."""
        for index in range(len(cases)):
            self.progress(f"case {index + 1} once more, with other values")
            again = self._case(cases[index], len(cases) + index, explain=True, told=frozenset(self._given))
            if not again.result.verdict.passed:
                graded[index] = again
                return

    def _case(self, case: Case, index: int, explain: bool, told: frozenset[str] | None = None) -> _Graded:
        """Run one case and compare. explain: let the PTX machine tell the cause of what fails on a GPU.

        told: all that kernels were given before, for a case that is run again.
        """
        begun = time.monotonic()
        traffic, complaint = self._tried(case, index, self.device, self._ask)
        if complaint is None and told is not None and not self._given <= told:
            cause = (
                "the host computes from the inputs' values what it gives to a kernel; your kernel has to do the work"
            )
            complaint = Complaint(Verdict.NOT_YOUR_KERNEL, cause)
        if explain and self._on_the_machine and complaint is not None and complaint.verdict in _SYMPTOMS:
            complaint = self._explained(case, index, complaint)
        if complaint is not None and complaint.verdict in _BY_A_KERNEL:
            complaint = self._empty_kernel() or complaint
        seconds = time.monotonic() - begun
        if complaint is None:
            return _Graded(CaseResult(case, Verdict.PASSED, seconds=seconds), traffic)
        file = self._shown(complaint.file)
        return _Graded(CaseResult(case, complaint.verdict, complaint.cause, file, complaint.line, seconds), traffic)

    def _explained(self, case: Case, index: int, complaint: Complaint) -> Complaint:
        """The PTX machine's complaint about a case that failed on the GPU, where that says more."""
        self.progress("looking for the cause on the PTX machine")
        machine = self.session.runner("cpu")
        try:
            _, cause = self._tried(case, index, "cpu", machine.ask)
        finally:
            machine.close()
        if cause is None or cause.verdict not in (complaint.verdict, *_FAULTS):
            return complaint
        return cause

    def _tried(
        self, case: Case, index: int, device: str, ask: Callable[..., Answer]
    ) -> tuple[tuple[LineTraffic, ...], Complaint | None]:
        """What a case asks of memory, as the PTX machine counts it, and what is wrong with its outputs."""
        try:
            answer, payloads = ask({"do": "run", "case": dict(case), "seed": derive(self.seed, index)})
            pairs = zip(answer["outputs"], payloads, strict=True)
            outputs = [tensor_of(told, raw, device) for told, raw in pairs]
            inputs = draw_inputs(self.exercise, case, derive(self.seed, index), device)
            complaint = self._compare(inputs, answer, outputs)
            self._given.update(answer["given"], answer["written"])
            if complaint is not None and complaint.element is not None and device == "cpu":
                complaint = _with_writer(complaint, ask, *complaint.element)
        except Stopped as stopped:
            return (), stopped.complaint
        return tuple(LineTraffic(**line) for line in answer["traffic"]), complaint

    def _compare(
        self, inputs: Sequence[Any], answer: Mapping[str, Any], outputs: Sequence[torch.Tensor]
    ) -> Complaint | None:
        expected = expected_outputs(self.exercise, inputs)
        if len(outputs) != len(expected):
            cause = f"{self.exercise.entry} returned {len(outputs)} tensors, expected {len(expected)}"
            return Complaint(Verdict.WRONG_TYPE, cause)
        complaint = self._conduct(answer, inputs)
        dtype = output_dtype(self.exercise, inputs)
        complaint = complaint or compare.judge(outputs, expected, self.exercise.tolerance, dtype)
        comparable = complaint is None or complaint.verdict is Verdict.WRONG_VALUES
        if comparable and self.exercise.check is not None and (said := self.exercise.check(inputs, outputs)):
            return Complaint(Verdict.WRONG_VALUES, said)
        return complaint

    def _conduct(self, answer: Mapping[str, Any], inputs: Sequence[Any]) -> Complaint | None:
        """What the submission did besides giving outputs."""
        tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
        if answer["tampered"]:
            return Complaint(Verdict.TAMPERED, answer["tampered"])
        if answer["out_of_bounds"]:
            return Complaint(Verdict.OUT_OF_BOUNDS, f"a kernel {answer['out_of_bounds']}")
        if answer["inputs_seen"] != [compare.fingerprint(tensor) for tensor in tensors]:
            return Complaint(Verdict.MUTATED_INPUT, "an input is not bit for bit what it was before the call")
        return _borrowed(answer, self.exercise.entry) if self.exercise.is_kernel else None

    def _count_meanwhile(self) -> None:
        """Let the PTX machine begin with the largest case."""
        if self._on_the_machine:
            self._counting = self.session.runner("cpu")
            message = {"do": "run", "case": dict(self._largest), "seed": derive(self.seed, "counting")}
            self._counting.post(message)

    def _traffic(self, graded: Sequence[_Graded]) -> tuple[tuple[LineTraffic, ...], Complaint | None]:
        """The largest case's counters, and the first limit that they break."""
        if self.device == "cuda":
            lines, complaint = self._counted()
            if complaint is not None:
                return (), complaint
            case = self._largest
        else:
            largest = max(graded, key=lambda g: self.exercise.bytes_moved(**g.result.case))
            lines, case = largest.traffic, largest.result.case
        compulsory = self.exercise.bytes_moved(**case)
        complaint = measure.traffic_complaint(lines, self.exercise.traffic, compulsory, case)
        if complaint is not None and self.device == "cpu":
            # what a first call tries out, as autotuning does, is no cost
            lines = self._case(case, _ONCE_MORE, explain=False).traffic or lines
            complaint = measure.traffic_complaint(lines, self.exercise.traffic, compulsory, case)
        if complaint is not None:
            complaint = replace(complaint, file=str(self.session.submission.with_name(complaint.file)))
        return lines, complaint

    def _counted(self) -> tuple[tuple[LineTraffic, ...], Complaint | None]:
        """What the PTX machine found meanwhile: counters, or a fault that the GPU let pass."""
        if self._counting is None:
            return (), None
        self.progress("counting traffic on the PTX machine")
        try:
            answer, _ = self._counting.answer()
        except Stopped as stopped:
            return (), stopped.complaint if stopped.complaint.verdict in _FAULTS else None
        finally:
            self._counting.close()
        return tuple(LineTraffic(**line) for line in answer["traffic"]), None

    def _profile(self) -> Complaint | None:
        """Which kernels the GPU ran, at the size that is timed where there is one."""
        case = self.exercise.bench or self._largest
        try:
            answer, _ = self._ask(
                {"do": "profile", "case": dict(case), "seed": derive(self.seed, "profile")}, PROFILE_SECONDS
            )
        except Stopped as stopped:
            return stopped.complaint
        return _library_share(answer)

    def _measurement(self, bench: bool) -> tuple[Measurement | None, Complaint | None]:
        try:
            return measure.measure(self.exercise, self._ask, self._conduct, self.seed, self.progress, bench)
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


def _with_writer(complaint: Complaint, ask: Callable[..., Answer], output: int, element: int) -> Complaint:
    """The complaint with the thread and the line that wrote the wrong element, where the PTX machine saw it."""
    answer, _ = ask({"do": "writer", "output": output, "element": element})
    if not answer["writer"]:
        return complaint
    cause = f"{complaint.cause}; {answer['writer']} wrote the first of them"
    return replace(complaint, cause=cause, file=answer["file"], line=answer["line"])


def _borrowed(answer: Mapping[str, Any], entry: str) -> Complaint | None:
    """Whether a library did the work."""
    if answer["operators"]:
        names = ", ".join(dict.fromkeys(f"torch.{name}" for name in answer["operators"]))
        return Complaint(Verdict.NOT_YOUR_KERNEL, f"{entry} calls {names}; your kernel has to do the work")
    if not answer["launches"]:
        return Complaint(Verdict.NOT_YOUR_KERNEL, f"{entry} launched no kernel")
    if answer["borrowed"]:
        return Complaint(Verdict.NOT_YOUR_KERNEL, answer["borrowed"])
    return None


def _library_share(answer: Mapping[str, Any]) -> Complaint | None:
    """Whether kernels that the submission did not launch itself took a share of the GPU's time."""
    kernels: Mapping[str, float] = answer["kernels"]
    foreign = {name: seconds for name, seconds in kernels.items() if not any(own in name for own in answer["launches"])}
    if sum(foreign.values()) <= LIBRARY_SHARE * sum(kernels.values()):
        return None
    slowest = max(foreign, key=lambda name: foreign[name])
    share = sum(foreign.values()) / sum(kernels.values())
    return Complaint(Verdict.NOT_YOUR_KERNEL, f"{share:.0%} of the GPU's time went to other kernels, such as {slowest}")
