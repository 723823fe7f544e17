"""Keep the results of cases, and select the finding that says most about them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kernelpath.course.problem import Case, arguments
from kernelpath.grading.provenance import Observation
from kernelpath.verdict import CaseResult, Finding, Verdict

# The least number of cases on either side.
#
# A condition that holds for 3 of 6 cases holds for exactly the failing ones by coincidence 1 time in 20, and 1 time in
# 6 where there are 2 and 2.
_MIN_CASES = 3

# The probability up to which a pattern may be a coincidence.
_COINCIDENCE = 0.05

# The conditions on one size that are tried. Each may hold by coincidence.
_CONDITIONS = 10

_MULTIPLES = (128, 64, 32, 16, 8, 4, 2)


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
    pattern = describe_pattern(failed_cases, passed_cases)
    return replace(finding, cause=f"{finding.cause}; {pattern}") if pattern else finding


def describe_pattern(failed: Sequence[Case], passed: Sequence[Case]) -> str:
    """Describe the pattern: "every case with dtype=bfloat16 fails, and no other"; empty where it may be a coincidence.

    A mode (a flag or a name) explains more than a number of which one value fails, and this more than a size. Where two
    arguments of one kind separate the cases, one of them does so by coincidence, and neither is named.
    """
    if min(len(failed), len(passed)) < _MIN_CASES:
        return ""
    columns = []
    for name in failed[0]:
        failed_values, passed_values = ([case[name] for case in cases if name in case] for cases in (failed, passed))
        if len(failed_values) == len(failed) and passed_values:
            columns.append((name, failed_values, passed_values))
    kinds = [
        [text for name, wrong, right in columns if (text := _mode_pattern(name, wrong, right))],
        [text for name, wrong, right in columns if (text := _value_pattern(name, wrong, right))],
    ]
    sizes = [(name, wrong, right) for name, wrong, right in columns if _all_of_type(int, wrong + right)]
    # With `choices` ways to pick the failing cases, each condition that is tried holds by coincidence in one of them.
    choices = math.comb(len(failed) + len(passed), len(failed))
    if sizes and _CONDITIONS * len(sizes) <= _COINCIDENCE * choices:
        kinds.append([text for name, wrong, right in sizes for text in _size_patterns(name, wrong, right)])
    patterns: list[str] = next(filter(None, kinds), [])
    return patterns[0] if len(patterns) == 1 else ""


def _mode_pattern(name: str, wrong: Sequence[object], right: Sequence[object]) -> str:
    """Return the pattern of a flag or a name whose values all fail or all pass; empty without any."""
    if not _all_of_type((bool, str), [*wrong, *right]) or {*wrong} & {*right}:
        return ""
    *values, last = (f"{name}={value}" for value in dict.fromkeys(wrong))
    return _describe_condition(f"{', '.join(values)} or {last}" if values else last)


def _value_pattern(name: str, wrong: Sequence[object], right: Sequence[object]) -> str:
    """Return the pattern of an integer of which a single value fails, or only 0 or only 1 passes; empty without any."""
    if not _all_of_type(int, [*wrong, *right]):
        return ""
    if len({*wrong}) == 1 and wrong[0] not in right:
        return _describe_condition(f"{name}={wrong[0]}")
    if len({*right}) == 1 and right[0] in (0, 1) and min(wrong) > right[0]:  # type: ignore[type-var, operator]
        return _describe_condition(f"{name} above {right[0]}")
    return ""


def _size_patterns(name: str, wrong: Sequence[int], right: Sequence[int]) -> Iterator[str]:
    """Yield each condition on a size that holds for all failing cases and for no passing case."""
    for factor in _MULTIPLES:
        # 0 is a multiple of every factor, so cases that pass show nothing if they are all empty.
        if any(right) and all(size % factor for size in wrong) and not any(size % factor for size in right):
            yield _describe_condition(f"{name} not a multiple of {factor}")
            break
    else:
        if all(map(_is_power, right)) and not any(map(_is_power, wrong)):
            yield _describe_condition(f"{name} not a power of 2")
    if min(wrong) > max(right):
        yield f"every case with {name} >= {min(wrong):,} fails, and those with {name} <= {max(right):,} pass"
    if max(wrong) < min(right):
        yield f"every case with {name} <= {max(wrong):,} fails, and those with {name} >= {min(right):,} pass"


def _describe_condition(condition: str) -> str:
    return f"every case with {condition} fails, and no other"


def _all_of_type(types: type | tuple[type, ...], values: Sequence[object]) -> bool:
    """Return whether all values are of these types. A flag does not count as an integer."""
    return all(isinstance(value, types) and (types is not int or not isinstance(value, bool)) for value in values)


def _is_power(size: int) -> bool:
    return size > 0 and size & (size - 1) == 0
