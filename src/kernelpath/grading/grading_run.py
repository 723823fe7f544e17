"""Grade one submission once: all steps in order, from the first case to the report."""

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
from kernelpath.grading.ground_truth import derive_seed, expected_outputs
from kernelpath.grading.job import Job
from kernelpath.grading.kinds import kind_of
from kernelpath.grading.kinds.distributed import Distributed
from kernelpath.grading.kinds.operator import Operator
from kernelpath.grading.launch_recording import NothingToDraw
from kernelpath.grading.provenance import Observation
from kernelpath.grading.workers import Workers
from kernelpath.packages import versions
from kernelpath.verdict import Finding, Measurement, NetworkTraffic, Report, Verdict
from kernelpath.work import messages
from kernelpath.work.runner import Runner, SubmissionFailed, Usage

Progress = Callable[[str], None]

_REPEAT_INDEX = -1
"""Replaces a case's index, so that other values are generated."""


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
    """Grades one submission once.

    On the PTX machine there is a shadow run: a second process gets the same calls with other values and another order
    of warps and blocks, and must launch the same. Where a GPU grades, the machine meanwhile runs the largest case, for
    its counters and for this comparison, then the other cases for their faults, and the first case that failed.
    """

    def __init__(self, job: Job, workers: Workers, seed: int, progress: Progress, brief: bool = False) -> None:
        self.job = job
        self.seed = seed
        self.progress = progress
        self._workers = workers
        self._kind = kind_of(job.exercise, job.device)
        self._copy = workers.copy()
        self._runner = workers.runner(job.device)
        self._shadow_runner = workers.runner("cpu") if self._kind.needs_shadow_run else None
        is_kernel_on_gpu = self.job.device == "cuda" and self.job.exercise.is_kernel
        has_cpu_shadow = is_kernel_on_gpu and not devices.missing_capability(self.job.exercise, "cpu", job.target)
        self._lacks_counters = is_kernel_on_gpu and not has_cpu_shadow
        self._cpu_shadow = CpuShadow(job, workers, seed) if has_cpu_shadow else None
        self._machine_runner: Runner | None = None
        """Runs the submission on the PTX machine, if anything does."""

        if self._cpu_shadow is not None:
            self._machine_runner = self._cpu_shadow.runner
        elif self._kind.on_machine:
            self._machine_runner = self._runner
        self._cases = CaseRunner(job, workers, seed, progress, self._runner, self._shadow_runner, has_cpu_shadow, brief)
        self._largest = self.job.exercise.largest
        self._start = time.monotonic()

    def report(self, bench: bool, timed: bool = True) -> Report:
        """Run every case, then check traffic, then time; the first finding is the verdict.

        Args:
            bench: Whether to take every round of a measurement.
            timed: Whether to measure the speed, on a GPU.
        """
        graded: list[GradedCase] = []
        counters: Observation | None = None
        measurement: Measurement | None = None
        not_measured: tuple[str, ...] = ()
        finding = self._check_capability()
        if finding is None:
            if self._cpu_shadow is not None:
                other_cases = [case for case in self.job.exercise.cases if case is not self._largest]
                self._cpu_shadow.start(self._largest, other_cases)
            graded = self._cases.run()
            finding = select_finding(graded)
        if finding is None and isinstance(self._kind, Operator):
            self.progress("inspecting the operator")
            finding = self.job.locate(self._kind.inspect(self._runner, self.seed))
        if finding is None and self.job.exercise.fusion is not None:
            self.progress(f"compiling {self.job.exercise.fusion.entry}")
            finding = self.job.locate(fusion.check_fusion(self.job.exercise.fusion, self._runner, self.seed))
        if finding is None and self.job.device == "cuda" and self.job.exercise.is_kernel:
            finding = self._check_gpu_run(graded)
        if finding is None:
            counters, finding = self._check_counters(graded)
        if finding is None and counters is not None and self.job.exercise.tensor_cores:
            finding = self._check_tensor_cores(graded)
        if finding is None:
            finding, not_measured = self._check_registers()
        if finding is None:
            self.progress("offsets past 2^31")
            large, large_not_measured = large_offsets.grade_large_offsets(self.job, self._machine_runner, self.seed)
            graded += large
            not_measured += large_not_measured
            finding = select_finding(large)
        if finding is None and timed and self.job.device == "cuda" and self.job.exercise.baseline is not None:
            measurement, finding, speed_not_measured = self._measure(bench)
            not_measured += speed_not_measured + self._describe_neighbors()
        self.close()
        verdict = finding.verdict if finding else Verdict.PASSED
        file = self.job.display_path(finding.file) if finding else ""
        next_step = finding.step if finding else verdict.then
        return Report(
            exercise=self.job.item.stem,
            title=self.job.item.title,
            submission=self.job.display_path(str(self.job.submission)),
            device=devices.device_name(self.job.device, self.job.target),
            seed=self.seed,
            verdict=verdict,
            cause=words.shown(finding.cause) if finding else "",
            file=file,
            line=finding.line if finding else 0,
            stars=measure.stars(measurement, verdict, self.job.item.stars),
            next_step=next_step.format(
                file=file or self.job.file_to_fix(verdict),
                name=self.job.item.name,
                seed=self.seed,
                check=self.job.command,
            ),
            not_measured=measure.not_measured(self.job.exercise, measurement, verdict, timed)
            + self.job.substitutions
            + self._describe_missing_counters(verdict)
            + not_measured
            + measure.MISSING_PROTECTIONS,
            cases=tuple(case.result for case in graded),
            traffic=counters.traffic if counters else (),
            instructions=counters.instructions if counters else (),
            network=self._network_traffic(graded),
            measurement=measurement,
            printed=self._runner.printed,
            versions=versions(),
            graded=self._copy.digests,
            seconds=time.monotonic() - self._start,
            compile_seconds=self._runner.compile_seconds,
        )

    def heaviest_launch(self) -> device_messages.LaunchProfile:
        """Return the heaviest launch of the largest case. Raise NothingToDraw where the case fails."""
        self.progress("running on the PTX machine")
        try:
            return self._heaviest_launch(self._runner)
        except SubmissionFailed as error:
            raise NothingToDraw(f"{error.finding.verdict.value}: {error.finding.cause}") from None

    def record_launch(self) -> launch_recording.RecordedLaunch:
        """Return the heaviest launch of the first case that fails, up to the fault, else of the largest case."""
        kind = kind_of(self.job.exercise, "cpu")
        return launch_recording.record_launch(self.job, kind, self._runner, self.seed, self.progress)

    def logs(self, cases: Sequence[Case]) -> list[Log]:
        """Return the steps of several ranks in each of these cases. Raise NothingToDraw where a case fails."""
        logs: list[Log] = []
        for case in cases:
            self.progress(f"case {words.case(case)}")
            try:
                observation = self._kind.call(self._runner, case, derive_seed(self.seed, "picture"))
            except SubmissionFailed as error:
                raise NothingToDraw(f"{error.finding.verdict.value}: {error.finding.cause}") from None
            if observation.finding is not None:
                raise NothingToDraw(f"{observation.finding.verdict.value}: {observation.finding.cause}")
            assert observation.log is not None
            logs.append(observation.log)
        return logs

    def _network_traffic(self, graded: Sequence[GradedCase]) -> tuple[NetworkTraffic, ...]:
        """Return the traffic between the ranks of each case that returned."""
        logs = [(case.result.case, case.observation.log) for case in graded if case.observation is not None]
        return tuple(
            network.measure_traffic(case, log, self.job.exercise.network.links) for case, log in logs if log is not None
        )

    def _heaviest_launch(self, runner: Runner) -> device_messages.LaunchProfile:
        """Return the heaviest launch of the largest case.

        Raises:
            SubmissionFailed: The case fails.
            Usage: Nothing is launched.
        """
        kind_of(self.job.exercise, "cpu").call(runner, self._largest, derive_seed(self.seed, "picture"))
        launch = runner.request_machine(device_messages.GetLaunchProfile(runner.client), device_messages.LaunchProfile)
        if launch is None:
            raise Usage(f"{self.job.item.name} launches no kernel, so there is nothing to draw")
        return launch

    def close(self) -> None:
        """End the processes and keep what they printed."""
        for runner in (self._runner, self._shadow_runner, self._cpu_shadow):
            if runner is not None:
                runner.close()

    def _check_capability(self) -> Finding | None:
        """Return a finding where the submission cannot be copied, or this machine cannot run the exercise."""
        if self._copy.unusable:
            return Finding(Verdict.COMPILE_ERROR, self._copy.unusable, str(self.job.submission))
        if missing_package := packages.lacking(self.job.item.lane):
            return Finding(Verdict.UNAVAILABLE, missing_package)
        reason = devices.missing_capability(self.job.exercise, self.job.device, self.job.target)
        next_step = "{check} --device cpu" if self.job.device == "cuda" else ""
        return Finding(Verdict.UNAVAILABLE, reason, then=next_step) if reason else None

    def _check_counters(self, graded: Sequence[GradedCase]) -> tuple[Observation | None, Finding | None]:
        """Return the observation with the counters to report, and the first limit that a case exceeds.

        The largest case is checked first.
        """
        if self._cpu_shadow is not None:
            self.progress("counting on the PTX machine")
            observation, finding = self._cpu_shadow.wait_for_counters()
            if finding is not None:
                return None, self.job.locate(finding)
            candidates = [(self._largest, observation)]
        else:
            candidates = [(case.result.case, case.observation) for case in graded]
            candidates.sort(key=lambda pair: pair[0] is not self._largest)
        for case, observation in candidates:
            finding = self._check_limits(case, observation)
            if finding is not None and self.job.device == "cpu":
                # A first call may try several kernels, as autotuning does, and that is not a cost of the kernel.
                repeated = self._cases.run_case(
                    self._runner,
                    case,
                    _REPEAT_INDEX,
                    explain=False,
                    other_values=observation,
                    label=f"once more {words.case(case)}",
                )
                if not repeated.result.verdict.passed:
                    return repeated.observation, repeated.finding
                observation = repeated.observation or observation
                finding = self._check_limits(case, observation)
            if finding is not None:
                return observation, self.job.locate(finding)
        return candidates[0][1], None

    def _check_limits(self, case: Case, observation: Observation | None) -> Finding | None:
        """Return the first limit on counters that a case exceeds."""
        if observation is None:
            return None
        if isinstance(self._kind, Distributed) and observation.log is not None:
            return self._kind.check_network(case, observation.log)
        too_much_memory: Finding | None = None
        if case is self._largest:
            too_much_memory = memory.check_workspace(self.job.exercise, case, observation.workspace)
        return (
            provenance.check_launch_count(self.job.exercise, observation.transcript)
            or too_much_memory
            or check_counters(self.job.exercise, case, observation)
        )

    def _check_tensor_cores(self, graded: Sequence[GradedCase]) -> Finding | None:
        """Return a finding where the results of tensor cores do not reach the output of the largest case.

        The case is run with these results negated.
        """
        if self._machine_runner is None:
            return None
        self.progress("negating what tensor cores make")
        plain = next((case.observation for case in graded if case.result.case is self._largest), None)
        try:
            negated, finding = self._cases.run_negated(self._machine_runner, self._largest, plain)
        except SubmissionFailed as error:
            return self.job.locate(error.finding)
        if finding is not None:
            return self.job.locate(finding)
        expected = expected_outputs(self.job.exercise, negated.inputs)
        return self.job.locate(provenance.check_tensor_core_output(self.job.exercise, negated, expected))

    def _check_registers(self) -> tuple[Finding | None, tuple[str, ...]]:
        """Return what ptxas says of the largest case's heaviest kernel, and why it says nothing where it does not."""
        if not self.job.exercise.instructions.registers_only or self._machine_runner is None:
            return None, ()
        try:
            finding, not_measured = instructions.check_registers(self._heaviest_launch(self._machine_runner))
        except SubmissionFailed as error:
            return error.finding, ()
        return self.job.locate(finding), (not_measured,) if not_measured else ()

    def _describe_missing_counters(self, verdict: Verdict) -> tuple[str, ...]:
        """Say why there are no counters where the PTX machine could not count beside the GPU."""
        if self._cpu_shadow is not None:
            return self._cpu_shadow.not_measured
        # The machine simulates few architectures. For example, it has no target for the GPUs of sm_89.
        if not self._lacks_counters or verdict is Verdict.UNAVAILABLE:
            return ()
        stands_for = f"the PTX machine stands for {self.job.target.name} beside this GPU"
        return (f"counters: {stands_for}; kp check {self.job.item.name} --device cpu has them",)

    def _check_gpu_run(self, graded: Sequence[GradedCase]) -> Finding | None:
        """Return a finding about the kernels and operators that the GPU ran."""
        self.progress("checking what the GPU runs")
        operators = [operator for case in graded if case.observation for operator in case.observation.operators]
        try:
            return profile.check_gpu_run(
                self.job.exercise, self._runner, self._cpu_shadow, self._largest, operators, self.seed
            )
        except SubmissionFailed as error:
            return measure.memory_finding(self.job.exercise, error) or error.finding

    def _measure(self, bench: bool) -> tuple[Measurement | None, Finding | None, tuple[str, ...]]:
        """Return the measurement, a finding about it, and sentences about what could not be measured."""
        if isinstance(self._kind, Distributed):
            return multi_gpu.measure(self.job, self._workers, self.seed, self.progress) if bench else (None, None, ())
        on_machine = self._cpu_shadow.operators if self._cpu_shadow else ()

        def check_process(result: messages.CallResult, inputs: tuple[object, ...]) -> Finding | None:
            operators = provenance.check_gpu_operators(result.operators, on_machine, self.job.exercise.entry)
            return operators or self._kind.check_process(result, inputs)

        reference = self.job.item.files("expert")
        try:
            measurement, finding = measure.measure(
                self.job.exercise, self._runner, check_process, self.seed, self.progress, bench, reference=reference
            )
        except SubmissionFailed as error:
            return None, error.finding, ()
        return measurement, finding, ()

    def _describe_neighbors(self) -> tuple[str, ...]:
        """Name other processes on the GPU, which disturb the time."""
        neighbors = list(gpu.neighbors(self._runner.pids, gpu.gpu_id()))
        return (f"an undisturbed time: {gpu.noise(neighbors)}",) if neighbors else ()
