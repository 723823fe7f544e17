"""A declaration is validated when it is made: every rule it breaks is named."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kernelpath.course.spec import EXACT, DeclarationError, Exercise, Question, Tolerance, Traffic

QUESTION = Question("How many?", 3, "Because.")


def exercise(**changes: Any) -> Exercise:
    fields: dict[str, Any] = {
        "entry": "double",
        "inputs": lambda rng, n: (n,),
        "cases": ({"n": 3, "dtype": "float32"},),
        "reference": lambda x: x,
        "tolerance": {"float32": EXACT},
        "hints": ("a", "b", "c"),
        "questions": (QUESTION,),
        "explain": "More.",
        "bytes_moved": lambda n, dtype: 8 * n,
    }
    return Exercise(**{**fields, **changes})


def test_a_valid_exercise_is_made() -> None:
    assert exercise(vary=("n",)).cases[0]["n"] == 3


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"entry": "vector add"}, "entry: 'vector add' is not the name of a function"),
        ({"entry": ""}, "entry: '' is not"),
        ({"cases": ()}, "cases: there is none"),
        ({"cases": ({"n": 1}, {"n": 1024})}, "cases: every size is a power of two"),
        ({"cases": ({"dtype": "float32"},)}, "cases: every size is a power of two"),
        ({"vary": ("rows",)}, r"vary: \['rows'\] are not arguments of every case"),
        ({"cases": ({"n": 3}, {"m": 5}), "vary": ("n",)}, r"vary: \['n'\] are not"),
        ({"tolerance": {}}, "tolerance: there is none"),
        ({"hints": ("a", "b")}, "hints: there must be three"),
        ({"hints": ("a", " ", "c")}, "hints: there must be three"),
        ({"questions": ()}, "questions: there is none"),
        ({"explain": "\n"}, "explain: it is empty"),
        ({"bench": {"n": 5}}, "bench and baseline: one goes with the other"),
        ({"baseline": abs}, "bench and baseline: one goes with the other"),
        ({"min_speedup": 0.0}, "min_speedup: 0.0 is not positive"),
    ],
)
def test_a_broken_rule_is_named(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        exercise(**changes)


@pytest.mark.parametrize(("rtol", "atol"), [(-0.1, 0.1), (0.1, -0.1), (1.0, 0.0), (0.0, 1.0), (0.6, 0.4)])
def test_a_tolerance_below_zero_or_that_admits_zeros_is_refused(rtol: float, atol: float) -> None:
    with pytest.raises(DeclarationError, match="tolerance: rtol"):
        Tolerance(rtol, atol)


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ({"sectors": 0.9}, "traffic: sectors=0.9 is below 1.0"),
        ({"bank_conflicts": -1.0}, "traffic: bank_conflicts=-1.0 is below 0.0"),
        ({"bytes": 0.5}, "traffic: bytes=0.5 is below 1.0"),
    ],
)
def test_a_limit_that_no_kernel_reaches_is_refused(limit: dict[str, float], said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        Traffic(**limit)


def test_traffic_is_limited_by_any_of_its_limits() -> None:
    assert not Traffic().limited
    assert Traffic(bank_conflicts=0.0).limited


@pytest.mark.parametrize(
    ("fields", "said"),
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
def test_a_question_without_an_answer_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        Question(**fields)
