"""Test the choice of the reported case, and the description of the pattern in the cases that fail."""

from __future__ import annotations

import pytest
import torch

from kernelpath.course.problem import Case
from kernelpath.grading.graded_case import GradedCase, decides, describe_pattern, select_finding
from kernelpath.grading.provenance import Observation
from kernelpath.verdict import CaseResult, Verdict


def sizes(*values: int) -> list[Case]:
    return [{"n": value} for value in values]


@pytest.mark.parametrize(
    ("failed", "passed", "pattern"),
    [
        ([{"dtype": "bfloat16"}] * 3, [{"dtype": "float32"}] * 3, "dtype=bfloat16"),
        ([{"causal": True}] * 3, [{"causal": False}] * 3, "causal=True"),
        ([{"at": "a"}, {"at": "b"}, {"at": "a"}], [{"at": "c"}] * 3, "at=a or at=b"),
        (sizes(33, 1009, 7, 65, 513), sizes(32, 96, 4096, 64, 160, 2048), "n not a multiple of 32"),
        (sizes(127, 20_480, 96, 640, 384), sizes(128, 1, 131_072, 16, 2, 64), "n not a power of 2"),
        ([{"bins": 65_536}] * 3, [{"bins": 1}, {"bins": 7}, {"bins": 256}], "bins=65536"),
        ([{"pad": 3}, {"pad": 8}, {"pad": 1}], [{"pad": 0}] * 3, "pad above 0"),
        # A mode explains more than a size, or than a single value of a number.
        ([{"n": n, "far": True} for n in (9, 9, 9)], [{"n": n, "far": False} for n in (8, 10, 16)], "far=True"),
        # A single failing value of a probability may be chance.
        ([{"p": 0.1}] * 3, [{"p": 0.0}, {"p": 0.5}, {"p": 0.9}], ""),
        # Too few cases support a condition on a size.
        (sizes(33, 1009, 7), sizes(32, 96, 4096), ""),
        (sizes(300, 512, 301), sizes(7, 256, 32), ""),
        # Two conditions on one size would hold.
        (sizes(301, 303, 307, 309, 311), sizes(8, 16, 24, 40, 48, 56), ""),
        ([{"n": 33}, {"n": 65}], [{"n": 32}, {"n": 64}, {"n": 96}], ""),
        ([{"n": 33}, {"n": 65}, {"n": 97}], [{"n": 32}, {"n": 64}], ""),
        ([{"n": 33}, {"n": 65}, {"n": 64}], [{"n": 32}, {"n": 64}, {"n": 65}], ""),
        ([{"dtype": "bfloat16"}] * 2 + [{"dtype": "float32"}], [{"dtype": "float32"}] * 3, ""),
        ([{"m": 328, "n": 33}] * 3, [{"m": 72, "n": 32}, {"m": 1, "n": 64}, {"m": 130, "n": 128}], ""),
    ],
)
def test_an_argument_that_separates_the_cases_is_named(failed: list[Case], passed: list[Case], pattern: str) -> None:
    assert describe_pattern(failed, passed) == (f"every case with {pattern} fails, and no other" if pattern else "")


@pytest.mark.parametrize(
    ("failed", "passed", "pattern"),
    [
        ((300, 512, 301, 4000, 999), (7, 256, 32, 33, 48, 100), "n >= 300 fails, and those with n <= 256 pass"),
        ((1, 2, 2, 4, 3), (32, 5, 48, 6, 100, 7), "n <= 4 fails, and those with n >= 5 pass"),
    ],
)
def test_a_threshold_is_named_from_both_sides(failed: tuple[int, ...], passed: tuple[int, ...], pattern: str) -> None:
    assert describe_pattern(sizes(*failed), sizes(*passed)) == f"every case with {pattern}"


def test_an_uninitialized_read_with_its_line_precedes_an_unwritten_output() -> None:
    def make_graded_case(verdict: Verdict, line: int = 0) -> GradedCase:
        return GradedCase(CaseResult({"n": 1}, verdict, "", "k.cu", line))

    unwritten = Verdict.NOT_WRITTEN
    read = Verdict.UNINITIALIZED
    wrong = Verdict.WRONG_VALUES
    race = Verdict.RACE
    for first, second, expected in (
        ((unwritten, 0), (read, 30), (read, 30)),
        ((unwritten, 0), (read, 0), (unwritten, 0)),
        ((unwritten, 0), (wrong, 30), (unwritten, 0)),
        ((unwritten, 0), (race, 30), (unwritten, 0)),
        ((wrong, 0), (read, 30), (wrong, 0)),
    ):
        finding = select_finding(
            [make_graded_case(Verdict.PASSED), make_graded_case(*first), make_graded_case(*second)]
        )
        assert finding is not None
        assert (finding.verdict, finding.line) == expected


def test_a_case_with_a_single_element_is_reported_last() -> None:
    def make_graded_case(tokens: int) -> GradedCase:
        observation = Observation(inputs=(), outputs=[torch.ones(tokens, 64), torch.ones(tokens)])
        return GradedCase(CaseResult({"tokens": tokens}, Verdict.WRONG_VALUES, f"{tokens} are wrong"), observation)

    finding = select_finding([make_graded_case(1), make_graded_case(63)])
    assert finding is not None
    assert finding.cause == "63 are wrong"
    assert not decides(make_graded_case(1))
    assert decides(make_graded_case(63))


def test_a_slow_case_is_reported_only_without_wrong_cases() -> None:
    slow, wrong = (GradedCase(CaseResult({"n": 1}, verdict)) for verdict in (Verdict.TOO_SLOW, Verdict.WRONG_VALUES))
    for graded_cases, expected in (([slow, wrong], Verdict.WRONG_VALUES), ([slow, slow], Verdict.TOO_SLOW)):
        finding = select_finding(graded_cases)
        assert finding is not None
        assert finding.verdict is expected
    assert decides(wrong)
    assert not decides(slow)


def test_a_failed_assertion_names_its_case() -> None:
    cause = "AssertionError: assert torch.allclose(out, expected)"
    failed = GradedCase(CaseResult({"n": 7, "values": "extreme"}, Verdict.CRASHED, cause))
    finding = select_finding([GradedCase(CaseResult({"n": 7}, Verdict.PASSED)), failed])
    assert finding is not None
    assert finding.cause == f"{cause}; at n=7 values=extreme"


def test_only_wrong_values_report_a_pattern() -> None:
    def make_graded_case(n: int, verdict: Verdict) -> GradedCase:
        return GradedCase(CaseResult({"n": n}, verdict, "" if verdict.passed else "all are wrong"))

    passed = [make_graded_case(n, Verdict.PASSED) for n in (32, 96, 4096, 64, 160, 2048)]
    finding = select_finding([*passed, *(make_graded_case(n, Verdict.WRONG_VALUES) for n in (33, 1009, 7, 65, 513))])
    assert finding is not None
    assert finding.cause == "all are wrong; every case with n not a multiple of 32 fails, and no other"
    finding = select_finding([*passed, *(make_graded_case(n, Verdict.RACE) for n in (33, 1009, 7, 65, 513))])
    assert finding is not None
    assert finding.cause == "all are wrong"
