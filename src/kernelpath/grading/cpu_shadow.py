"""The PTX machine beside a GPU: it counts, finds faults that hold on any GPU, and checks what the GPU ran."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from kernelpath.course.problem import Case, arguments
from kernelpath.device.messages import Note
from kernelpath.grading import launches, provenance
from kernelpath.grading.ground_truth import derive
from kernelpath.grading.kinds.kernel import NOTHING, Kernel
from kernelpath.grading.provenance import Observation
from kernelpath.grading.submission import Submission
from kernelpath.verdict import Finding, Verdict
from kernelpath.work import messages
from kernelpath.work.runner import Runner, SubmissionFailed
from warpcheck.frontends.tuning import Chosen

FAULTS = (Verdict.OUT_OF_BOUNDS, Verdict.UNINITIALIZED, Verdict.RACE, Verdict.BARRIER)
"""Complaints of the PTX machine that hold on any GPU, also where the result came out right."""


@dataclass(frozen=True)
class ShadowResult:
    """What the machine tells of a case. unable: why it could not run the submission, where that may be its own lack."""

    observation: Observation | None = None
    finding: Finding | None = None
    unable: str = ""


class CpuShadow:
    """The largest case on the PTX machine, then the others for their faults, while the GPU is busy.

    What those may ask for of memory follows from the compiler's version where tiles are partial, and beside a GPU that
    is often an old one: limits hold on the largest case.
    """

    def __init__(self, submission: Submission, seed: int) -> None:
        self._submission, self._seed = submission, seed
        self._kind = Kernel(submission.exercise, "cpu")
        self._runners = submission.workers.runner("cpu"), submission.workers.runner("cpu")
        self._case: Case = {}
        self._running: Future[ShadowResult] | None = None
        self._others: Future[Finding | None] | None = None
        self._found: ShadowResult | None = None

    @property
    def runner(self) -> Runner:
        """The submission on the PTX machine."""
        return self._runners[0]

    def begin(self, case: Case, others: Sequence[Case] = ()) -> None:
        for runner in self._runners:
            runner.prepare()
        self._case = case
        pool = ThreadPoolExecutor(1)
        self._running = pool.submit(self._both)
        self._others = pool.submit(self._each, others)
        pool.shutdown(wait=False)

    def counted(self) -> tuple[Observation | None, Finding | None]:
        """What has the counters, or a finding that holds on any GPU; waits for it."""
        found = self._waited()
        finding = found.finding
        if finding is None and self._others is not None:
            finding = self._others.result()
        return found.observation, finding

    @property
    def not_counted(self) -> tuple[str, ...]:
        """What a report says where the machine could not run the submission."""
        unable = self._found.unable if self._found else ""
        return (f"counters, and whether the PTX machine agrees: {unable}",) if unable else ()

    @property
    def operators(self) -> Sequence[messages.OperatorCall]:
        """Those that the submission called on the machine; waits for it."""
        found = self._waited()
        return found.observation.operators if found.observation else ()

    def compared(self, profiled: messages.ProfileResult) -> Finding | None:
        """Whether the GPU launched for this case what the machine did.

        The GPU had called the entry before, and decided what only time decides. So where they differ, a fresh process
        on the machine is told that, and asked once and again; its counters stand where it launches the same.
        """
        found = self._waited()
        if found.observation is None:
            return None  # counted() complains, or there is nothing to compare with
        try:
            seen = launches.of_trace(profiled.trace)
        except launches.NoTrace:
            return Finding(Verdict.TAMPERED, "the submission answered in place of the worker")
        library = {launches.readable(name) for name in profiled.library}
        seen = [one for one in seen if one.name not in library]
        different = launches.difference(seen, _own(found.observation), self._submission.item.lane)
        if different is None:
            return None
        runner = self._runners[0]
        runner.close()
        for call in ("told", "again"):
            observation = self._call(runner, call, chosen=profiled.chosen)
            if observation is None or observation.finding is not None:
                return different
            if launches.difference(seen, _own(observation), self._submission.item.lane) is None:
                self._found = ShadowResult(observation)
                return None
        return different

    def close(self) -> None:
        for runner in self._runners:
            runner.close()

    def _waited(self) -> ShadowResult:
        if self._found is None:
            assert self._running is not None
            self._found = self._running.result()
        return self._found

    def _both(self) -> ShadowResult:
        first: Observation | None = None
        for runner, what in zip(self._runners, ("counting", "comparing"), strict=True):
            try:
                observation = self._kind.call(
                    runner, self._case, derive(self._seed, what), order=int(first is not None)
                )
            except SubmissionFailed as stopped:
                if stopped.finding.verdict in FAULTS:
                    return ShadowResult(finding=stopped.finding)
                return ShadowResult(unable=f"{stopped.finding.verdict.value} there: {stopped.finding.cause}")
            exercise = self._submission.exercise
            finding = observation.finding or provenance.other_block(exercise, observation.notes)
            finding = finding or provenance.other_cores(exercise, observation)
            if finding is None and first is not None:
                finding = provenance.difference(first, observation, self._submission.exercise.entry)
            if finding is not None:
                return ShadowResult(finding=finding)
            first = first or observation
        return ShadowResult(first)

    def _each(self, cases: Sequence[Case]) -> Finding | None:
        """Each of them once, in the second process, as far as it runs them; the first fault."""
        if self._waited().observation is None:
            return None
        for case in cases:
            stops = False
            try:
                finding = self._kind.call(self._runners[1], case, derive(self._seed, "counting")).finding
            except SubmissionFailed as stopped:
                finding, stops = stopped.finding, True
            if finding is not None and finding.verdict in FAULTS:
                return replace(finding, cause=f"at {arguments(case)}: {finding.cause}")
            if stops:
                break
        return None

    def _call(self, runner: Runner, what: str, chosen: Chosen = NOTHING) -> Observation | None:
        try:
            return self._kind.call(runner, self._case, derive(self._seed, what), chosen=chosen)
        except SubmissionFailed:
            return None


def _own(observation: Observation) -> list[Note]:
    """The launches there, without the products of torch.mm."""
    return [note for note in observation.notes if note.kernel != messages.PRODUCT]
