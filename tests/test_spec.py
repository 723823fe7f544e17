"""Test that declarations are validated on construction, with a message for every violated rule."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kernelpath.course.errors import DeclarationError
from kernelpath.course.lesson import Question
from kernelpath.course.problem import EXACT, Problem, Tolerance
from kernelpath.course.spec import Exercise, Traffic

PROBLEM_FIELDS = ("inputs", "cases", "reference", "tolerance", "compulsory_bytes", "flops", "vary")


def create_problem(**changes: Any) -> Problem:
    fields: dict[str, Any] = {
        "inputs": lambda rng, n: (n,),
        "cases": ({"n": 3, "dtype": "float32"},),
        "reference": lambda x: x,
        "tolerance": {"float32": EXACT},
        "compulsory_bytes": lambda n, dtype: 8 * n,
    }
    return Problem(**{**fields, **changes})


def create_exercise(**changes: Any) -> Exercise:
    fields: dict[str, Any] = {"entry": "double", "problem": create_problem()}
    return Exercise(**{**fields, **changes})


NO_DTYPE = create_problem(cases=({"n": 5},), compulsory_bytes=lambda n: 8 * n, flops=lambda n: 1000 * n)


def test_an_exercise_delegates_to_its_problem() -> None:
    shared = create_problem(vary=("n",), flops=lambda n, dtype: n)
    twins = [create_exercise(problem=shared), create_exercise(problem=shared, entry="double_triton")]
    for name in PROBLEM_FIELDS:
        assert getattr(twins[0], name) is getattr(twins[1], name) is getattr(shared, name)


def test_an_exercise_may_have_cases_of_its_own() -> None:
    own = ({"n": 5, "dtype": "bfloat16"},)
    shared = create_problem()
    assert create_exercise(problem=shared, cases=own).cases == own
    assert shared.cases[0]["n"] == 3


def test_an_exercise_may_have_limits_of_its_own() -> None:
    shared = create_problem(limits=({"n": 7, "dtype": "float32"},))
    own = ({"n": 9, "dtype": "float32"},)
    assert (
        create_exercise(problem=shared).limits,
        create_exercise(problem=shared, limits=own).limits,
    ) == (shared.limits, own)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cases": ()}, "cases: none is declared"),
        ({"cases": ({"n": 1}, {"n": 1024})}, "cases: every size is a power of two"),
        ({"cases": ({"dtype": "float32"},)}, "cases: every size is a power of two"),
        ({"vary": ("rows",)}, r"vary: \['rows'\] are not arguments of every case"),
        ({"cases": ({"n": 3}, {"m": 5}), "vary": ("n",)}, r"vary: \['n'\] are not"),
        ({"tolerance": {}}, "tolerance: none is declared"),
        ({"limits": ({"n": 3},)}, "limits: n=3 does not have the arguments n, dtype"),
        ({"gpu_limits": ({"n": 3},)}, "gpu_limits: n=3 does not have the arguments n, dtype"),
        ({"faults": {"wrong": abs}}, "faults: only extreme inputs show them; declare extreme"),
    ],
)
def test_an_invalid_problem_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        create_problem(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"entry": "vector add"}, "entry: 'vector add' is not the name of a function"),
        ({"entry": ""}, "entry: '' is not"),
        ({"cases": ({"n": 1024, "dtype": "float32"},)}, "cases: every size is a power of two"),
        (
            {"cases": ({"m": 5},), "problem": create_problem(vary=("n",))},
            r"vary: \['n'\] are not arguments of every case",
        ),
        ({"bench": {"n": 5}}, "bench and baseline: declare both or neither"),
        ({"baseline": abs}, "bench and baseline: declare both or neither"),
        ({"sweep": ({"n": 5, "dtype": "float32"},)}, "sweep: it needs bench and baseline"),
        (
            {"sweep": ({"n": 5},), "bench": {"n": 5, "dtype": "float32"}, "baseline": abs},
            "sweep: n=5 does not have the arguments n, dtype",
        ),
        ({"limits": ({"n": 5},)}, "limits: n=5 does not have the arguments n, dtype"),
        ({"min_speedup": 0.0}, "min_speedup: 0.0 is not positive"),
        ({"traffic": Traffic(shared=1.0)}, "traffic: shared needs the problem's flops"),
        (
            {"problem": NO_DTYPE, "bench": {"n": 5}, "baseline": abs},
            "product_dtype: operations may bound the bench case",
        ),
    ],
)
def test_an_invalid_exercise_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        create_exercise(**changes)


@pytest.mark.parametrize(("rtol", "atol"), [(-0.1, 0.1), (0.1, -0.1), (1.0, 0.0), (0.0, 1.0), (0.6, 0.4)])
def test_a_tolerance_that_is_negative_or_accepts_zeros_is_refused(rtol: float, atol: float) -> None:
    with pytest.raises(DeclarationError, match="tolerance: rtol"):
        Tolerance(rtol, atol)


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ({"sectors": 0.9}, "traffic: sectors=0.9 cannot be reached"),
        ({"bank_conflicts": -1.0}, "traffic: bank_conflicts=-1.0 cannot be reached"),
        ({"bytes": 0.5}, "traffic: bytes=0.5 cannot be reached"),
        ({"same_address": 0.0}, "traffic: same_address=0.0 cannot be reached"),
        ({"bulk": 1.1}, "traffic: bulk=1.1 cannot be reached"),
    ],
)
def test_a_limit_that_no_kernel_can_reach_is_refused(limit: dict[str, float], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        Traffic(**limit)


def test_limits_are_described_with_upper_bounds_first() -> None:
    """A limit of 0 is stated, too, and nouns are plural unless the number is 1."""
    limited = create_exercise(traffic=Traffic(bank_conflicts=0.0, bulk=0.5), tensor_cores=True, launches=1)
    assert " ".join(limited.describe_limits().split()) == (
        "The grader enforces these limits on the largest case (n=3 dtype=float32); smaller cases get some slack for"
        " partial tiles. Bank conflicts may add at most 0 wavefronts per request. A call may launch at most 1 kernel."
        " At least 50% of the global memory traffic must go through TMA. The multiply-adds must run on tensor cores."
    )
    assert create_exercise().describe_limits() == ""


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"ask": " ", "answer": 1, "why": "so"}, "ask and why must not be empty"),
        ({"ask": "?", "answer": 1, "why": ""}, "ask and why must not be empty"),
        ({"ask": "?", "answer": "c", "why": "so", "choices": ("a", "b")}, "the answer 'c' is none of the choices"),
        ({"ask": "?", "answer": "a", "why": "so", "choices": ("a",)}, "two or more different choices"),
        ({"ask": "?", "answer": "a", "why": "so", "choices": ("a", "a")}, "two or more different choices"),
        ({"ask": "?", "answer": "a", "why": "so"}, "must be a finite number, not 'a'"),
        ({"ask": "?", "answer": math.nan, "why": "so"}, "must be a finite number, not nan"),
    ],
)
def test_a_question_without_an_answer_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        Question(**fields)
