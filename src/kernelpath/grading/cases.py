"""Runs the cases of one submission, here and in a process that was identical up to its first call."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kernelpath import words
from kernelpath.course.inputs import EXTREME, PLAIN, UNORDERED, InputMode
from kernelpath.course.problem import Case, arguments
from kernelpath.grading import compare, failure_pattern, provenance
from kernelpath.grading.cpu_shadow import FAULTS
from kernelpath.grading.ground_truth import derive, drawn_cases, placements
from kernelpath.grading.kinds import Kind, kind_of
from kernelpath.grading.kinds.kernel import Kernel
from kernelpath.grading.provenance import Observation
from kernelpath.grading.submission import BY_A_KERNEL, Submission
from kernelpath.verdict import CaseResult, Finding, Verdict
from kernelpath.work.runner import Runner, SubmissionFailed

_SYMPTOMS = (*BY_A_KERNEL, Verdict.CRASHED, Verdict.TIMED_OUT)
"""What a GPU shows of a fault whose cause and line the PTX machine can tell."""

_BY_STATE = (Verdict.NOT_WRITTEN, Verdict.WRONG_VALUES, Verdict.UNINITIALIZED, Verdict.RACE)
_STATE = (
    "the same call is right as the first one of a process: something is kept between calls, such as a counter that is "
    "not set back to 0 or a tensor in a cache"
)

_ENDS_GRADING = (
    Verdict.NOT_STARTED,
    Verdict.COMPILE_ERROR,
    Verdict.TIMED_OUT,
    Verdict.TAMPERED,
    Verdict.UNAVAILABLE,
)


_ORDERS = (0, 1, 1_000_003)
"""Of warps and blocks, in which the same inputs must give the same bits; see warpcheck.runtime.order."""


@dataclass(frozen=True)
class GradedCase:
    """A case's end, with what was seen of it."""

    result: CaseResult
    observation: Observation | None = None

    @property
    def elements(self) -> int:
        """Of the smallest output, which may be the one that is wrong; 0 where there are none."""
        outputs = self.observation.outputs if self.observation is not None else ()
        return min((output.numel() for output in outputs), default=0)

    @property
    def finding(self) -> Finding | None:
        if self.result.verdict.passed:
            return None
        return Finding(self.result.verdict, self.result.cause, self.result.file, self.result.line)


def decides(graded: GradedCase) -> bool:
    """Whether most_telling needs none after this case, the first that fails: not for the verdict, nor for the case.

    An output that is not written may be told from the read of one that nothing wrote, and what is slow may be wrong.
    """
    verdict = graded.result.verdict
    return not verdict.passed and verdict not in (Verdict.NOT_WRITTEN, Verdict.TOO_SLOW) and graded.elements != 1


def select_finding(graded: Sequence[GradedCase]) -> Finding | None:
    """The first finding; of one about a single element, the first like it about more, where there is one.

    Of an output that was not written, the line that reads what nothing wrote, where there is one. Where values are
    wrong, it says what the cases that fail have in common. What is slow comes last: it is right everywhere.
    """
    failed = [one for one in graded if one.finding]
    failed = [one for one in failed if one.result.verdict is not Verdict.TOO_SLOW] or failed
    if not failed:
        return None
    verdict = failed[0].result.verdict
    reads = (one.finding for one in failed if one.result.verdict is Verdict.UNINITIALIZED and one.result.line)
    if verdict is Verdict.NOT_WRITTEN and (read := next(reads, None)) is not None:
        return read
    several = (one for one in failed if one.result.verdict is verdict and one.elements > 1)
    telling = failed[0] if failed[0].elements != 1 else next(several, failed[0])
    finding = telling.finding
    if finding is not None and finding.verdict is Verdict.CRASHED and "AssertionError" in finding.cause:
        # An assertion of the submission's own: on which inputs it fails is not in its text.
        return replace(finding, cause=f"{finding.cause}; at {arguments(telling.result.case)}")
    if finding is None or verdict is not Verdict.WRONG_VALUES:
        return finding
    passed = [one.result.case for one in graded if not one.finding]
    common = failure_pattern.told([one.result.case for one in failed], passed)
    return replace(finding, cause=f"{finding.cause}; {common}") if common else finding


class CaseRunner:
    """Of one grading.

    runner: the submission. twin: it once more, where both run on the PTX machine. explain: whether a GPU runs them, so
    that the machine may tell the cause of what fails. brief: go no further than the case that decides on the verdict.
    """

    def __init__(
        self,
        submission: Submission,
        seed: int,
        progress: Callable[[str], None],
        runner: Runner,
        twin: Runner | None,
        explain: bool,
        brief: bool = False,
    ) -> None:
        self._submission, self._seed, self._progress, self._brief = submission, seed, progress, brief
        self._runner, self._twin, self._explain = runner, twin, explain
        self._kind = kind_of(submission.exercise, submission.device)
        self._called: set[Runner] = set()

    def run(self) -> list[GradedCase]:
        """All of them, as far as there is something to learn from going on."""
        exercise = self._submission.exercise
        limits = [*exercise.limits, *(exercise.gpu_limits if self._submission.device == "cuda" else ())]
        cases = [*exercise.cases, *drawn_cases(exercise, self._seed), *limits]
        graded: list[GradedCase] = []
        for index, case in enumerate(cases):
            compiles = "compiling, then " if index == 0 and exercise.is_kernel else ""
            self._progress(f"{compiles}case {index + 1} of {len(cases)}")
            first_to_fail = all(earlier.result.verdict.passed for earlier in graded)
            graded.append(self.one(self._runner, case, index, explain=first_to_fail, label=f"case {index}"))
            if graded[-1].result.verdict in _ENDS_GRADING or self._runner.cannot_recover:
                break
            if self._brief and first_to_fail and decides(graded[-1]):
                break
            if self._twin is not None and index == 0 and not self._brief:
                self._twin.prepare()  # while the other cases run, which a brief grading seldom does
        if exercise.is_kernel and all(one.result.verdict.passed for one in graded):
            self._once_more(cases, graded)
        return graded

    def _once_more(self, cases: Sequence[Case], graded: list[GradedCase]) -> None:
        """Every case with extreme values, and the small ones with tensors that begin anywhere, until one is wrong.

        The smallest of the limits comes again as it was: what is beyond all other sizes may have a kernel of its own,
        and what that keeps from call to call shows nowhere else.
        On the PTX machine in the second process, which must launch the same for these values as the first for others.
        """
        runner = self._twin or self._runner
        extreme = replace(EXTREME, redistributed=self._twin is not None)
        second: list[Observation | None] = []
        for index, case in enumerate(cases):
            self._progress(f"case {index + 1} again, with extreme values")
            like = graded[index].observation if self._twin is not None else None
            again = self.one(runner, case, len(cases) + index, True, like, extreme, label=f"case {index}")
            if not again.result.verdict.passed:
                graded[index] = again
                return
            second.append(again.observation)
        if self._twin is not None and (wrong := self._tables(graded, second)) is not None:
            index, finding = wrong
            graded[index] = self._ended(cases[index], EXTREME, self._submission.placed(finding), None, 0.0)
            return
        drawn = [one.observation.inputs if one.observation else () for one in graded]
        exercise = self._submission.exercise
        limits = sorted(exercise.limits, key=lambda case: exercise.compulsory_bytes(**case))
        runs = placements(exercise, drawn, self._seed)
        runs += [(cases.index(case), PLAIN) for case in limits[:1]]
        for position, (index, variety) in enumerate(runs):
            self._progress(f"case {index + 1}, at a size seen before")
            label, place = f"again {position}", 2 * len(cases) + position
            again = self.one(
                runner, cases[index], place, True, variety=variety, other_values=second[index], label=label
            )
            if not again.result.verdict.passed:
                graded[index] = again
                return
        if exercise.deterministic:
            self._repeated(runner, cases, graded, second)

    def _tables(self, graded: Sequence[GradedCase], second: Sequence[Observation | None]) -> tuple[int, Finding] | None:
        """The first case with a table that the host wrote, by its index, where nothing that is drawn could show it."""
        first_calls: dict[int, Observation] = {}
        for index, (case, repeated) in enumerate(zip(graded, second, strict=True)):
            if case.observation is None or repeated is None:
                continue
            if not provenance.same_values(case.observation.inputs, repeated.inputs):
                return None
            first_calls[index] = case.observation
        for index, observation in first_calls.items():
            if finding := provenance.written_by_the_host(observation, self._submission.exercise.entry):
                return index, finding
        return None

    def _repeated(
        self, runner: Runner, cases: Sequence[Case], graded: list[GradedCase], second: Sequence[Observation | None]
    ) -> None:
        """Every case with values whose sum depends on its order, in each of some orders, until the bits differ.

        second: calls of the same process with other values.
        """
        for index, case in enumerate(cases):
            self._progress(f"case {index + 1} once more, for the same bits")
            first: Observation | None = None
            for order in _ORDERS:
                label = f"order {order} of case {index}"
                again = self.one(
                    runner,
                    case,
                    index,
                    True,
                    variety=UNORDERED,
                    first=first,
                    order=order,
                    other_values=second[index],
                    label=label,
                )
                if not again.result.verdict.passed:
                    graded[index] = again
                    return
                first = again.observation

    def one(
        self,
        runner: Runner,
        case: Case,
        index: int,
        explain: bool,
        like: Observation | None = None,
        variety: InputMode = PLAIN,
        first: Observation | None = None,
        order: int = 0,
        other_values: Observation | None = None,
        label: str = "",
    ) -> GradedCase:
        """Run one case and compare. explain: let the PTX machine tell the cause of what fails on a GPU.

        like: what another process launched for other values; warps and blocks run in the opposite order, too. first: an
        earlier call with the same inputs, whose bits must come out again. order: of warps and blocks.
        other_values: an earlier call of this process with equal shapes; see `_compared`. label: see device.Begin.
        """
        begun = time.monotonic()
        order = 1 if like is not None else order
        observation, finding = self._tried(self._kind, runner, case, index, like, variety, first, order, label)
        if finding is None and like is None and other_values is not None and observation is not None:
            finding = self._compared(runner, case, index, observation, other_values, variety, order, label)
        if explain and self._explain and finding is not None and finding.verdict in _SYMPTOMS:
            finding = self._explained(case, index, finding, variety)
        if finding is not None and finding.verdict in BY_A_KERNEL:
            finding = self._submission.empty_kernel() or finding
        if finding is not None and explain and first is None and runner in self._called:
            finding = self._with_state(case, index, finding, variety, order)
        self._called.add(runner)
        return self._ended(case, variety, finding, observation, time.monotonic() - begun)

    def negated(
        self, runner: Runner, case: Case, other_values: Observation | None
    ) -> tuple[Observation, Finding | None]:
        """Call the entry on the PTX machine with the products of tensor cores negated. Raises SubmissionFailed.

        other_values: as in `one`.
        """
        kind = Kernel(self._submission.exercise, "cpu")
        observation = kind.call(runner, case, derive(self._seed, "negated"), negated=True, label="negated")
        if observation.finding is not None or self._twin is None or other_values is None:
            return observation, observation.finding
        finding = self._compared(runner, case, "negated", observation, other_values, PLAIN, 0, "negated", negated=True)
        return observation, finding

    def _compared(
        self,
        runner: Runner,
        case: Case,
        index: object,
        observation: Observation,
        other_values: Observation,
        variety: InputMode,
        order: int,
        label: str,
        negated: bool = False,
    ) -> Finding | None:
        """What is wrong with a call whose launches depend on values.

        They do not where an earlier call of the same process launched the same for other values, which is known for
        free. Else, as for tensors that begin elsewhere, the other process makes the same call with other values.
        """
        if self._twin is None or provenance.same_launches(other_values, observation):
            return None
        twin = self._runner if runner is self._twin else self._twin
        seed = derive(self._seed, index, "other values")
        variety = replace(variety, redistributed=not variety.redistributed)
        kind = Kernel(self._submission.exercise, "cpu")
        try:
            other = kind.call(
                twin, case, seed, variety=variety, order=order, negated=negated, label=label, judged=False
            )
        except SubmissionFailed as stopped:
            return self._submission.placed(stopped.finding)
        finding = other.finding or provenance.difference(observation, other, self._submission.exercise.entry)
        return self._submission.placed(finding)

    def _ended(
        self, case: Case, variety: InputMode, finding: Finding | None, observation: Observation | None, seconds: float
    ) -> GradedCase:
        if finding is None:
            return GradedCase(CaseResult(case, Verdict.PASSED, seconds=seconds), observation)
        file, told = self._submission.shown(finding.file), {**case, **variety.label}
        return GradedCase(
            CaseResult(told, finding.verdict, words.shown(finding.cause), file, finding.line, seconds), observation
        )

    def _explained(self, case: Case, index: int, finding: Finding, variety: InputMode) -> Finding:
        """The PTX machine's finding about a case that failed on the GPU, where that says more."""
        self._progress("looking for the cause on the PTX machine")
        runner = self._submission.workers.runner("cpu")
        try:
            kind = kind_of(self._submission.exercise, "cpu")
            _, cause = self._tried(kind, runner, case, index, None, variety)
        finally:
            runner.close()
        if cause is None or cause.verdict not in (finding.verdict, Verdict.DEADLOCK, *FAULTS):
            return finding
        return cause

    def _with_state(self, case: Case, index: int, finding: Finding, variety: InputMode, order: int) -> Finding:
        """Say so where the same call is right as the first one of a process: something is kept from call to call."""
        if finding.verdict not in _BY_STATE or not self._kind.on_machine:
            return finding
        self._progress("trying that call first in a new process")
        runner = self._submission.workers.runner(self._submission.device)
        try:
            _, alone = self._tried(self._kind, runner, case, index, None, variety, order=order)
        finally:
            runner.close()
        return finding if alone is not None else replace(finding, cause=f"{finding.cause}; {_STATE}")

    def _tried(
        self,
        kind: Kind,
        runner: Runner,
        case: Case,
        index: int,
        like: Observation | None,
        variety: InputMode,
        first: Observation | None = None,
        order: int = 0,
        label: str = "",
    ) -> tuple[Observation | None, Finding | None]:
        """What was seen of a case, and what is wrong with it."""
        seed = derive(self._seed, index)
        try:
            observation = kind.call(runner, case, seed, variety=variety, order=order, label=label)
            finding = observation.finding if variety.unordered else kind.judged(observation)
            if finding is None:
                finding = provenance.other_language(
                    self._submission.exercise, self._submission.item.lane, observation.notes
                )
            if finding is None and like is not None:
                finding = provenance.difference(like, observation, self._submission.exercise.entry)
            if finding is None and first is not None:
                finding = compare.unrepeated(first, observation)
            if finding is not None and finding.element is not None:
                finding = kind.with_writer(runner, observation, finding, self._submission.item.lane)
        except SubmissionFailed as stopped:
            return None, self._submission.placed(stopped.finding)
        return observation, self._submission.placed(finding)
