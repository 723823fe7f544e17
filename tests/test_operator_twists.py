"""The twists of the differentiable operator: each can be solved and is graded right, and what is told of them holds."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelpath.course import registry
from kernelpath.course.checkpoint import DeliverableVariant
from kernelpath.course.inputs import EXTREME, PLAIN, generate_inputs
from kernelpath.course.problems.operator_twists import ACTIVATIONS, FUSED_TWISTS, MEETINGS, OPERATORS, TWISTS
from kernelpath.course.registry import Deliverable
from kernelpath.grading.compare import check_outputs
from kernelpath.verdict import Report, Verdict
from tests.few_cases import grade_in_few_cases

from . import twisted_operators

EVERY = (*TWISTS, *FUSED_TWISTS)
BY_NAME = {twist.name: twist for twist in EVERY}
CHOSEN = [BY_NAME[name] for name in ("layer_norm+soft_cap+rows", "log_softmax+clamp+columns", "rms_norm+silu+gate")]


def phase(twist: DeliverableVariant) -> str:
    return "4_fusion" if twist in FUSED_TWISTS else "3_triton"


def graded(twist: DeliverableVariant, file: Path) -> Report:
    """Grade a file in few cases. With misaligned tensors and offsets past 2^31, two kernels take four times as long."""
    item = registry.exercise_ref(registry.root(), f"{phase(twist)}/deliverable:{twist.name}")
    assert isinstance(item, Deliverable)
    return grade_in_few_cases(item, file, seed=3, addresses=twist is CHOSEN[-1])


@pytest.mark.parametrize("twist", CHOSEN, ids=lambda twist: twist.name)
def test_two_kernels_pass(twist: DeliverableVariant, tmp_path: Path) -> None:
    report = graded(twist, twisted_operators.write(twist, tmp_path))
    assert (report.verdict, report.cause) == (Verdict.PASSED, "")
    assert report.exercise == f"{phase(twist)}/deliverable:{twist.name}"


def test_a_gradient_without_the_activations_is_wrong(tmp_path: Path) -> None:
    report = graded(CHOSEN[0], twisted_operators.write(CHOSEN[0], tmp_path, slope="1.0"))
    assert report.verdict is Verdict.WRONG_VALUES
    assert " of dx are wrong" in report.cause


def test_a_stub_is_not_started(tmp_path: Path) -> None:
    (tmp_path / "deliverable.py").write_text(CHOSEN[0].stub[".py"])
    assert graded(CHOSEN[0], tmp_path / "deliverable.py").verdict is Verdict.NOT_STARTED


@pytest.mark.parametrize("twist", EVERY, ids=lambda twist: twist.name)
def test_float32_is_exact_enough_and_bfloat16_is_not(twist: DeliverableVariant) -> None:
    """PyTorch's own operators in float32 stay within half of the tolerance; in bfloat16 their gradients do not."""
    exercise = twist.exercise
    assert exercise.baseline is not None
    for case in exercise.cases:
        for variety in (PLAIN, EXTREME):
            given = generate_inputs(exercise, case, 1, "cpu", variety)
            truth = exercise.reference(*given)
            assert all(one.isfinite().all() for one in truth)
            for out, right in zip(exercise.baseline(*(one.float() for one in given)), truth, strict=True):
                within = 5e-5 * right.abs() + 2.5e-4 * right.square().mean().sqrt()
                assert ((out - right).abs() <= within).all(), (case, variety)
    given = generate_inputs(exercise, exercise.largest, 1, "cpu")
    low = exercise.baseline(*(one.bfloat16() for one in given))
    assert check_outputs([one.float() for one in low], list(exercise.reference(*given)), exercise.tolerance) is not None


@pytest.mark.parametrize("last", ["rows", "columns", *(one.name for one in MEETINGS)])
@pytest.mark.parametrize("operator", [one.name for one in OPERATORS])
@pytest.mark.parametrize("activation", [one.name for one in ACTIVATIONS])
def test_the_truth_is_what_the_statement_says(operator: str, activation: str, last: str) -> None:
    """By loops over the lines of the statement."""
    twist = BY_NAME[f"{operator}+{activation}+{last}"]
    x, *other, dy = generate_inputs(twist.exercise, {"count": 3, "length": 5, "dtype": "float32"}, 1, "cpu")
    y = twist.exercise.reference(x, *other, dy)[0]
    lines = [
        next((one.line for one in parts if one.name == name), "")
        for parts, name in ((ACTIVATIONS, activation), (MEETINGS, last), (OPERATORS, operator))
    ]
    first, second, third = (line.partition(" = ")[2].replace("^", "**") for line in lines)
    turned = last == "columns"
    vectors = [(one.double().T if turned else one.double()) for one in (x, *other)]
    for values, told in zip(zip(*vectors, strict=True), y.T if turned else y, strict=True):
        h = torch.stack([eval(first, {**FUNCTIONS, "x": one}) for one in values[0]])
        if other:
            h = eval(second, {"a": h, "other": values[1]})
        torch.testing.assert_close(told, eval(third, {**OF_VECTORS, "h": h}))
    for line in lines:
        assert line.partition(" = ")[2] in twist.stub[".py"]
    assert max(map(len, twist.stub[".py"].splitlines())) <= 80


FUNCTIONS: dict[str, Any] = {
    "tanh": torch.tanh,
    "exp": torch.exp,
    "min": lambda a, b: torch.tensor(min(float(a), b), dtype=torch.float64),
    "max": max,
}
OF_VECTORS: dict[str, Any] = {
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": lambda one: torch.sqrt(one),
    "sum": torch.sum,
    "mean": torch.mean,
    "max": lambda one, least: one.clamp(min=least),
}


def test_there_are_thirty_of_each() -> None:
    assert len(BY_NAME) == len(TWISTS) + len(FUSED_TWISTS) == 60
    assert math.prod((len(OPERATORS), len(ACTIVATIONS), 2)) == 30
