"""One submission, graded once: the steps in their order, from the first case to the last word."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

from kernelpath import packages, words
from kernelpath.course.labs.fabric import Log
from kernelpath.course.problem import Case
from kernelpath.course.spec import Exercise
from kernelpath.device import gpu
from kernelpath.device import messages as device_messages
from kernelpath.grading import (
    devices,
    divergence,
    fusion,
    instructions,
    large_offsets,
    launch_recording,
    measure,
    memory,
    multi_gpu,
    network,
    profile,
    provenance,
    traffic,
)
from kernelpath.grading.cases import CaseRunner, GradedCase, select_finding
from kernelpath.grading.cpu_shadow import CpuShadow
from kernelpath.grading.ground_truth import derive, expected_outputs
from kernelpath.grading.kinds import kind_of
from kernelpath.grading.kinds.distributed import Distributed
from kernelpath.grading.kinds.operator import Operator
from kernelpath.grading.launch_recording import NotDrawn
from kernelpath.grading.provenance import Observation
from kernelpath.grading.submission import Submission
from kernelpath.packages import versions
from kernelpath.verdict import Finding, Measurement, NetworkTraffic, Report, Verdict
from kernelpath.work import messages
from kernelpath.work.runner import Runner, SubmissionFailed, Usage

Progress = Callable[[str], None]

_ONCE_MORE = -1
"""In place of a case's index, to draw other values."""


def check_counters(exercise: Exercise, case: Case, observation: Observation) -> Finding | None:
    """Return the first limit on traffic, divergence, and instructions that a case breaks."""
    elements = sum(output.numel() for output in observation.outputs)
    returned = sum(output.nbytes for output in observation.outputs)
    columns = min((output.shape[-1] for output in observation.outputs if output.dim() > 1), default=sys.maxsize)
    return (
        traffic.check_case(exercise, case, observation.traffic, returned, columns)
        or divergence.check_case(exercise, case, observation.instructions)
        or instructions.check_case(exercise, case, observation.traffic, observation.instructions, elements)
    )


class GradingRun:
    """One submission, once.

    On the PTX machine a second process, the same before its first call, gets other values and another order of warps
    and blocks, and must launch the same. Beside a GPU the machine runs the largest case meanwhile, for its counters and
    for this comparison, then the other cases for their faults, and the first case that failed.
    """

    def __init__(self, submission: Submission, seed: int, progress: Progress, brief: bool = False) -> None:
        self.submission, self.seed, self.progress = submission, seed, progress
        self.item, self.exercise, self.device = submission.item, submission.exercise, submission.device
        self._kind, self._copied = kind_of(self.exercise, self.device), submission.workers.copy()
        self._runner = submission.workers.runner(self.device)
        self._twin = submission.workers.runner("cpu") if self._kind.twin else None
        kernel_on_gpu = self.device == "cuda" and self.exercise.is_kernel
        beside = kernel_on_gpu and not devices.lacking(self.exercise, "cpu", submission.target)
        self._uncounted = kernel_on_gpu and not beside
        self._beside = CpuShadow(self.submission, seed) if beside else None
        self._on_machine = self._beside.runner if self._beside else self._runner if self._kind.on_machine else None
        self._cases = CaseRunner(self.submission, seed, progress, self._runner, self._twin, beside, brief)
        self._largest = self.exercise.largest
        self._begun = time.monotonic()

    def report(self, bench: bool, timed: bool = True) -> Report:
        """Every case, then traffic, then time; the first finding is the verdict."""
        graded: list[GradedCase] = []
        counted: Observation | None = None
        measurement: Measurement | None = None
        unsaid: tuple[str, ...] = ()
        finding = self._capability()
        if finding is None:
            if self._beside is not None:
                others = [case for case in self.exercise.cases if case is not self._largest]
                self._beside.begin(self._largest, others)
            graded = self._cases.run()
            finding = select_finding(graded)
        if finding is None and isinstance(self._kind, Operator):
            self.progress("inspecting the operator")
            finding = self.submission.placed(self._kind.inspected(self._runner, self.seed))
        if finding is None and self.exercise.fusion is not None:
            self.progress(f"compiling {self.exercise.fusion.entry}")
            finding = self.submission.placed(fusion.graded(self.exercise.fusion, self._runner, self.seed))
        if finding is None and self.device == "cuda" and self.exercise.is_kernel:
            finding = self._profile(graded)
        if finding is None:
            counted, finding = self._counted(graded)
        if finding is None and counted is not None and self.exercise.tensor_cores:
            finding = self._by_tensor_cores(graded)
        if finding is None:
            finding, unsaid = self._assembled()
        if finding is None:
            self.progress("offsets past 2^31")
            found, unsaid_far = large_offsets.grade_large_offsets(self.submission, self._on_machine, self.seed)
            graded, unsaid = graded + found, unsaid + unsaid_far
            finding = select_finding(found)
        if finding is None and timed and self.device == "cuda" and self.exercise.baseline is not None:
            measurement, finding, unmeasured = self._measurement(bench)
            unsaid += unmeasured + self._neighbors()
        self.close()
        verdict = finding.verdict if finding else Verdict.PASSED
        blamed = self.submission.shown(finding.file) if finding else ""
        return Report(
            exercise=self.item.stem,
            title=self.item.title,
            submission=self.submission.shown(str(self.submission.path)),
            device=devices.name(self.device, self.submission.target),
            seed=self.seed,
            verdict=verdict,
            cause=words.shown(finding.cause) if finding else "",
            file=blamed,
            line=finding.line if finding else 0,
            stars=measure.stars(measurement, verdict, self.item.stars),
            next_step=(finding.step if finding else verdict.then).format(
                file=blamed or self.submission.suspect(verdict), name=self.item.name, seed=self.seed
            ),
            not_measured=measure.not_measured(self.exercise, measurement, verdict, timed)
            + self.submission.instead
            + (self._beside.not_counted if self._beside else self._not_counted(verdict))
            + unsaid
            + measure.UNCONFINED,
            cases=tuple(g.result for g in graded),
            traffic=counted.traffic if counted else (),
            instructions=counted.instructions if counted else (),
            network=self._network(graded),
            measurement=measurement,
            printed=self._runner.printed,
            versions=versions(),
            graded=self._copied.digests,
            seconds=time.monotonic() - self._begun,
            compile_seconds=self._runner.compile_seconds,
        )

    def heaviest(self) -> device_messages.Drawn:
        """The largest case's heaviest launch."""
        self.progress("running on the PTX machine")
        try:
            return self._heaviest(self._runner)
        except SubmissionFailed as stopped:
            raise NotDrawn(f"{stopped.finding.verdict.value}: {stopped.finding.cause}") from None

    def recorded(self) -> launch_recording.Recorded:
        """The heaviest launch of the first case that fails, up to the fault, else of the largest, with its events."""
        return launch_recording.recorded(
            self.submission, kind_of(self.exercise, "cpu"), self._runner, self.seed, self.progress
        )

    def logs(self, cases: Sequence[Case]) -> list[Log]:
        """What several ranks did in each of these cases. Raises NotDrawn."""
        logs: list[Log] = []
        for case in cases:
            self.progress(f"case {words.case(case)}")
            try:
                observation = self._kind.call(self._runner, case, derive(self.seed, "picture"))
            except SubmissionFailed as stopped:
                raise NotDrawn(f"{stopped.finding.verdict.value}: {stopped.finding.cause}") from None
            if observation.finding is not None:
                raise NotDrawn(f"{observation.finding.verdict.value}: {observation.finding.cause}")
            assert observation.log is not None
            logs.append(observation.log)
        return logs

    def _network(self, graded: Sequence[GradedCase]) -> tuple[NetworkTraffic, ...]:
        """What the ranks exchanged in each case that returned."""
        logs = [(one.result.case, one.observation.log) for one in graded if one.observation is not None]
        return tuple(network.traffic(case, log, self.exercise.network.links) for case, log in logs if log is not None)

    def _heaviest(self, runner: Runner) -> device_messages.Drawn:
        """Raises SubmissionFailed, and Usage where nothing is launched."""
        kind_of(self.exercise, "cpu").call(runner, self._largest, derive(self.seed, "picture"))
        drawn = runner.request_machine(device_messages.Draw(runner.client), device_messages.Drawn)
        if drawn is None:
            raise Usage(f"{self.item.name} launches no kernel, so there is nothing to draw")
        return drawn

    def close(self) -> None:
        """End the processes and keep what they printed."""
        for runner in (self._runner, self._twin, self._beside):
            if runner is not None:
                runner.close()

    def _capability(self) -> Finding | None:
        if self._copied.unusable:
            return Finding(Verdict.COMPILE_ERROR, self._copied.unusable, str(self.submission.path))
        if missing := packages.lacking(self.item.lane):
            return Finding(Verdict.UNAVAILABLE, missing)
        reason = devices.lacking(self.exercise, self.device, self.submission.target)
        elsewhere = "kp check {name} --device cpu" if self.device == "cuda" else ""
        return Finding(Verdict.UNAVAILABLE, reason, then=elsewhere) if reason else None

    def _counted(self, graded: Sequence[GradedCase]) -> tuple[Observation | None, Finding | None]:
        """What has the counters to show, and the first limit that a case breaks; the largest comes first."""
        if self._beside is not None:
            self.progress("counting on the PTX machine")
            observation, finding = self._beside.counted()
            if finding is not None:
                return None, self.submission.placed(finding)
            counted = [(self._largest, observation)]
        else:
            counted = sorted(
                ((g.result.case, g.observation) for g in graded), key=lambda one: one[0] is not self._largest
            )
        for case, observation in counted:
            finding = self._beyond(case, observation)
            if finding is not None and self.device == "cpu":
                # what a first call tries out, as autotuning does, is no cost
                again = self._cases.one(
                    self._runner,
                    case,
                    _ONCE_MORE,
                    explain=False,
                    other_values=observation,
                    label=f"once more {words.case(case)}",
                )
                if not again.result.verdict.passed:
                    return again.observation, again.finding
                observation = again.observation or observation
                finding = self._beyond(case, observation)
            if finding is not None:
                return observation, self.submission.placed(finding)
        return counted[0][1], None

    def _beyond(self, case: Case, observation: Observation | None) -> Finding | None:
        """The first limit on counters that a case breaks."""
        if observation is None:
            return None
        if isinstance(self._kind, Distributed) and observation.log is not None:
            return self._kind.beyond(case, observation.log)
        held = memory.check_workspace(self.exercise, case, observation.workspace) if case is self._largest else None
        return (
            provenance.too_many(self.exercise, observation.notes)
            or held
            or check_counters(self.exercise, case, observation)
        )

    def _by_tensor_cores(self, graded: Sequence[GradedCase]) -> Finding | None:
        """Whether what tensor cores make reaches the output of the largest case: it is run with products negated."""
        if self._on_machine is None:
            return None
        self.progress("negating what tensor cores make")
        plain = next((one.observation for one in graded if one.result.case is self._largest), None)
        try:
            negated, finding = self._cases.negated(self._on_machine, self._largest, plain)
        except SubmissionFailed as stopped:
            return self.submission.placed(stopped.finding)
        if finding is not None:
            return self.submission.placed(finding)
        expected = expected_outputs(self.exercise, negated.inputs)
        return self.submission.placed(provenance.idle_cores(self.exercise, negated, expected))

    def _assembled(self) -> tuple[Finding | None, tuple[str, ...]]:
        """What ptxas says of the largest case's heaviest kernel, where that is limited; and what it does not say."""
        if not self.exercise.instructions.registers_only or self._on_machine is None:
            return None, ()
        try:
            finding, unsaid = instructions.local_memory(self._heaviest(self._on_machine))
        except SubmissionFailed as stopped:
            return stopped.finding, ()
        return self.submission.placed(finding), (unsaid,) if unsaid else ()

    def _not_counted(self, verdict: Verdict) -> tuple[str, ...]:
        """That no machine is beside the GPU which has what the exercise needs, as no target is of sm_89."""
        if not self._uncounted or verdict is Verdict.UNAVAILABLE:
            return ()
        stands_for = f"the PTX machine stands for {self.submission.target.name} beside this GPU"
        return (f"counters: {stands_for}; kp check {self.item.name} --device cpu has them",)

    def _profile(self, graded: Sequence[GradedCase]) -> Finding | None:
        """Which kernels and operators the GPU ran."""
        self.progress("checking what the GPU runs")
        called = [operator for one in graded if one.observation for operator in one.observation.operators]
        try:
            return profile.check_gpu_run(self.exercise, self._runner, self._beside, self._largest, called, self.seed)
        except SubmissionFailed as stopped:
            return measure.beyond_memory(self.exercise, stopped) or stopped.finding

    def _measurement(self, bench: bool) -> tuple[Measurement | None, Finding | None, tuple[str, ...]]:
        """With what could not be measured."""
        if isinstance(self._kind, Distributed):
            return multi_gpu.measure(self.submission, self.seed, self.progress) if bench else (None, None, ())
        machine = self._beside.operators if self._beside else ()

        def seen(returned: messages.CallResult, inputs: tuple[object, ...]) -> Finding | None:
            known = provenance.foreign(returned.operators, machine, self.exercise.entry)
            return known or self._kind.conduct(returned, inputs)

        reference = self.item.files("solutions")
        try:
            found = measure.measure(
                self.exercise, self._runner, seen, self.seed, self.progress, bench, reference=reference
            )
        except SubmissionFailed as stopped:
            return None, stopped.finding, ()
        return *found, ()

    def _neighbors(self) -> tuple[str, ...]:
        found = list(gpu.neighbors(self._runner.pids, gpu.gpu_id()))
        return (f"an undisturbed time: {gpu.noise(found)}",) if found else ()
