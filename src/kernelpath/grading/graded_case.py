"""Keep the results of cases, and select the finding that says most about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernelpath.course.problem import arguments
from kernelpath.grading import failure_pattern
from kernelpath.grading.provenance import Observation
from kernelpath.verdict import CaseResult, Finding, Verdict


@dataclass(frozen=True)
class GradedCase:
    """The result of a case, with its observation."""

    result: CaseResult
    observation: Observation | None = None

    @property
    def elements(self) -> int:
        """The elements of the smallest output, which may be the wrong output; 0 without outputs."""
        outputs = self.observation.outputs if self.observation is not None else ()
        return min((output.numel() for output in outputs), default=0)

    @property
    def finding(self) -> Finding | None:
        if self.result.verdict.passed:
            return None
        return Finding(self.result.verdict, self.result.cause, self.result.file, self.result.line)


def decides(graded: GradedCase) -> bool:
    """Return whether this case, the first that fails, is enough for `select_finding`.

    It is not enough for an unwritten output, which may be explained by a read of memory that nothing wrote, for a slow
    case, since another may be wrong, and for a single element.
    """
    verdict = graded.result.verdict
    return not verdict.passed and verdict not in (Verdict.NOT_WRITTEN, Verdict.TOO_SLOW) and graded.elements != 1


def select_finding(graded: Sequence[GradedCase]) -> Finding | None:
    """Return the most informative finding of these cases.

    That is the first one, with these exceptions. A slow case comes last: it is right. Instead of an unwritten output,
    the read of memory that nothing wrote is returned, where there is one with a line. Instead of a finding about a
    single element, the first with the same verdict about several is returned. Where values are wrong, the cause also
    names what the failing cases have in common.
    """
    all_failed = [case for case in graded if case.finding]
    failed = [case for case in all_failed if case.result.verdict is not Verdict.TOO_SLOW] or all_failed
    if not failed:
        return None
    verdict = failed[0].result.verdict
    reads = (case.finding for case in failed if case.result.verdict is Verdict.UNINITIALIZED and case.result.line)
    if verdict is Verdict.NOT_WRITTEN and (read := next(reads, None)) is not None:
        return read
    with_several_elements = (case for case in failed if case.result.verdict is verdict and case.elements > 1)
    selected = failed[0] if failed[0].elements != 1 else next(with_several_elements, failed[0])
    finding = selected.finding
    if finding is not None and finding.verdict is Verdict.CRASHED and "AssertionError" in finding.cause:
        # The text of a submission's own assertion does not say on which inputs it failed.
        return replace(finding, cause=f"{finding.cause}; at {arguments(selected.result.case)}")
    if finding is None or verdict is not Verdict.WRONG_VALUES:
        return finding
    failed_cases = [case.result.case for case in failed]
    passed_cases = [case.result.case for case in graded if not case.finding]
    pattern = failure_pattern.describe_pattern(failed_cases, passed_cases)
    return replace(finding, cause=f"{finding.cause}; {pattern}") if pattern else finding
