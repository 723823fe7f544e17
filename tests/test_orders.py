"""benchmarks/orders.py: it adds in the order of a variant, and finds a tolerance that right arithmetic exceeds."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
import torch

from kernelpath.course import registry
from kernelpath.course.problem import Tolerance
from kernelpath.course.spec import Exercise

sys.path.insert(0, "benchmarks")
import orders


def test_terms_are_added_in_the_order_of_the_variant() -> None:
    """One by one, terms of half a unit in the last place are lost after a 1; in a tree they are added first."""
    terms = torch.tensor([[1.0, *[2.0**-24] * 63]])
    assert orders.sum_in_blocks(terms, 1).item() == 1.0
    assert orders.sum_in_blocks(terms, 1 << 30).item() == pytest.approx(1 + 62 * 2.0**-24, abs=2.0**-23)
    assert orders.sum_in_blocks(terms[:, :0], 32).item() == 0.0
    with orders.Float32Arithmetic(orders.VARIANTS["one by one"]):
        assert terms.double().sum().item() == 1.0
        assert (terms.double() @ torch.ones(64, 1, dtype=torch.float64)).item() == 1.0
        assert terms.double().flatten().softmax(0).dtype == torch.float32


@pytest.fixture
def softmax() -> Exercise:
    exercise = registry.load(registry.find("fused_softmax"))
    case = {"rows": 9, "columns": 300, "dtype": "float32"}
    return replace(exercise, cases=(case,), limits=(), problem=replace(exercise.problem, vary=()))


def test_a_survey_finds_a_tolerance_that_right_arithmetic_exceeds(softmax: Exercise) -> None:
    assert orders.is_surveyed(softmax)
    shares = orders.survey(softmax, [1])
    assert 0 < min(shares.values()) <= max(shares.values()) < 1
    strict = {"float32": Tolerance(rtol=2.0**-24, atol=0.0, mtol=2.0**-30)}
    shares = orders.survey(replace(softmax, problem=replace(softmax.problem, tolerance=strict)), [1])
    assert min(shares.values()) > 1


def test_sums_of_integers_and_copies_are_not_surveyed() -> None:
    assert not orders.is_surveyed(registry.load(registry.find("int8_matmul")))
    assert not orders.is_surveyed(registry.load(registry.find("transpose")))
