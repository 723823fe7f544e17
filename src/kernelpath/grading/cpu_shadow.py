"""Run a submission on the PTX machine while a GPU grades it.

The machine counts, detects faults that hold on any GPU, and confirms what the GPU ran.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from kernelpath.course.problem import Case, arguments
from kernelpath.device.messages import LaunchEntry
from kernelpath.grading import launches, provenance
from kernelpath.grading.graders.kernel_on_machine import NO_CHOICES, KernelOnMachine
from kernelpath.grading.ground_truth import derive_seed
from kernelpath.grading.job import Job
from kernelpath.grading.provenance import Observation
from kernelpath.grading.workers import Workers
from kernelpath.verdict import Finding, Verdict
from kernelpath.work import messages
from kernelpath.work.runner import UNEXPECTED_RESPONSE, Runner, SubmissionFailed
from warpcheck.frontends.tuning import Chosen

# Verdicts of the PTX machine that hold on any GPU, even where the result is right.
FAULTS = (Verdict.OUT_OF_BOUNDS, Verdict.UNINITIALIZED, Verdict.RACE, Verdict.BARRIER)


@dataclass(frozen=True)
class ShadowResult:
    """The result of a case on the machine.

    Attributes:
        observation: The observation, where the machine could run the submission.
        finding: What is wrong with it.
        unable: Why the machine could not run the submission, where the machine itself may be to blame.
    """

    observation: Observation | None = None
    finding: Finding | None = None
    unable: str = ""


class CpuShadow:
    """Runs the largest case on the PTX machine, then the other cases for their faults, while the GPU is busy.

    Limits on memory accesses hold on the largest case alone. In other cases tiles are partial, and their accesses
    depend on the compiler's version, which beside a GPU is often an old one.
    """

    def __init__(self, job: Job, workers: Workers, seed: int) -> None:
        self._job = job
        self._seed = seed
        self._grader = KernelOnMachine(job)
        self._runners = workers.runner(self._grader.setup), workers.runner(self._grader.setup)
        self._case: Case = {}
        self._largest_case: Future[ShadowResult] | None = None
        self._other_cases: Future[Finding | None] | None = None
        self._result: ShadowResult | None = None

    @property
    def runner(self) -> Runner:
        """The submission on the PTX machine."""
        return self._runners[0]

    def start(self, case: Case, other_cases: Sequence[Case] = ()) -> None:
        """Start to run the largest case and then the other cases, in a thread."""
        for runner in self._runners:
            runner.prepare()
        self._case = case
        # One thread: the two tasks share the second runner, so they must not run at the same time.
        pool = ThreadPoolExecutor(1)
        self._largest_case = pool.submit(self._run_largest_case)
        self._other_cases = pool.submit(self._run_other_cases, other_cases)
        # Both tasks still run to their end, and then the thread ends.
        pool.shutdown(wait=False)

    def wait_for_counters(self) -> tuple[Observation | None, Finding | None]:
        """Wait for all cases, and return the observation with the counters, and a finding that holds on any GPU."""
        result = self._wait()
        finding = result.finding
        if finding is None and self._other_cases is not None:
            finding = self._other_cases.result()
        return result.observation, finding

    @property
    def not_measured(self) -> tuple[str, ...]:
        """Sentences for the report, where the machine could not run the submission."""
        unable = self._result.unable if self._result else ""
        return (f"counters, and whether the PTX machine agrees: {unable}",) if unable else ()

    @property
    def operators(self) -> Sequence[messages.OperatorCall]:
        """The operators that the submission called on the machine. Reading this waits for the largest case."""
        result = self._wait()
        return result.observation.operators if result.observation else ()

    def check_gpu_launches(self, profile: messages.ProfileResult) -> Finding | None:
        """Return a finding where the GPU's launches for this case differ from the machine's.

        The GPU had called the entry before, and had made choices that depend on time alone. So where the launches
        differ, a fresh process on the machine gets these choices, and is called twice. Where it then launches the same
        as the GPU, its counters count.
        """
        result = self._wait()
        if result.observation is None:
            return None  # wait_for_counters() returns the finding, or there is nothing to compare with
        try:
            gpu_launches = launches.parse_trace(profile.trace)
        except launches.InvalidTrace:
            return UNEXPECTED_RESPONSE
        # Where a statement leaves products to torch.mm, the GPU runs the library's kernels and the machine a kernel of
        # the grader's. Neither belongs to the submission.
        library = {launches.demangle(name) for name in profile.library}
        gpu_launches = [launch for launch in gpu_launches if launch.name not in library]
        lane = self._job.item.lane
        difference = launches.compare_with_machine(gpu_launches, _own_launches(result.observation), lane)
        if difference is None:
            return None
        runner = self._runners[0]
        runner.close()
        # The profile is of a second call (messages.Profile), and a first call may launch other kernels, as autotuning
        # does.
        for purpose in ("told", "again"):
            observation = self._call(runner, purpose, chosen=profile.chosen)
            if observation is None or observation.finding is not None:
                return difference
            if launches.compare_with_machine(gpu_launches, _own_launches(observation), lane) is None:
                self._result = ShadowResult(observation)
                return None
        return difference

    def close(self) -> None:
        for runner in self._runners:
            runner.close()

    def _wait(self) -> ShadowResult:
        if self._result is None:
            assert self._largest_case is not None
            self._result = self._largest_case.result()
        return self._result

    def _run_largest_case(self) -> ShadowResult:
        """Run the largest case in two processes with different values, and compare their launches."""
        exercise = self._job.exercise
        first: Observation | None = None
        for runner, purpose in zip(self._runners, ("counting", "comparing"), strict=True):
            seed = derive_seed(self._seed, purpose)
            try:
                observation = self._grader.call(runner, self._case, seed, order=int(first is not None))
            except SubmissionFailed as error:
                if error.finding.verdict in FAULTS:
                    return ShadowResult(finding=error.finding)
                return ShadowResult(unable=f"{error.finding.verdict.value} there: {error.finding.cause}")
            finding = observation.finding or provenance.check_block_size(exercise, observation.transcript)
            finding = finding or provenance.check_tensor_cores(exercise, observation)
            if finding is None and first is not None:
                finding = provenance.compare_launches(first, observation, exercise.entry, exercise.problem)
            if finding is not None:
                return ShadowResult(finding=finding)
            first = first or observation
        return ShadowResult(first)

    def _run_other_cases(self, cases: Sequence[Case]) -> Finding | None:
        """Run each of these cases once, in the second process, and return the first fault.

        Stop at the first case that the machine cannot run.
        """
        if self._wait().observation is None:
            return None
        for case in cases:
            has_ended = False
            try:
                finding = self._grader.call(self._runners[1], case, derive_seed(self._seed, "counting")).finding
            except SubmissionFailed as error:
                finding = error.finding
                has_ended = True
            if finding is not None and finding.verdict in FAULTS:
                return replace(finding, cause=f"at {arguments(case)}: {finding.cause}")
            if has_ended:
                break
        return None

    def _call(self, runner: Runner, purpose: str, chosen: Chosen = NO_CHOICES) -> Observation | None:
        try:
            return self._grader.call(runner, self._case, derive_seed(self._seed, purpose), chosen=chosen)
        except SubmissionFailed:
            return None


def _own_launches(observation: Observation) -> list[LaunchEntry]:
    """Return the launches of the submission's kernels, without the grader's kernels for torch.mm."""
    return [launch for launch in observation.transcript if launch.kernel != messages.PRODUCT]
