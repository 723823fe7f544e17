"""Test the variants of the differentiable operator: each is solvable, graded correctly, and described correctly."""

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

ALL_TWISTS = (*TWISTS, *FUSED_TWISTS)
BY_NAME = {twist.name: twist for twist in ALL_TWISTS}
CHOSEN = [BY_NAME[name] for name in ("layer_norm+soft_cap+rows", "log_softmax+clamp+columns", "rms_norm+silu+gate")]


def phase(twist: DeliverableVariant) -> str:
    return "4_fusion" if twist in FUSED_TWISTS else "3_triton"


def grade_deliverable(twist: DeliverableVariant, file: Path) -> Report:
    """Grade a file in few cases. Misaligned tensors and offsets past 2^31 take 4× longer: only one variant has them."""
    item = registry.exercise_ref(registry.root(), f"{phase(twist)}/deliverable:{twist.name}")
    assert isinstance(item, Deliverable)
    return grade_in_few_cases(item, file, seed=3, addresses=twist is CHOSEN[-1])


@pytest.mark.parametrize("twist", CHOSEN, ids=lambda twist: twist.name)
def test_two_kernels_pass(twist: DeliverableVariant, tmp_path: Path) -> None:
    report = grade_deliverable(twist, twisted_operators.write(twist, tmp_path))
    assert (report.verdict, report.cause) == (Verdict.PASSED, "")
    assert report.exercise == f"{phase(twist)}/deliverable:{twist.name}"


def test_a_gradient_without_the_activations_is_wrong(tmp_path: Path) -> None:
    report = grade_deliverable(CHOSEN[0], twisted_operators.write(CHOSEN[0], tmp_path, slope="1.0"))
    assert report.verdict is Verdict.WRONG_VALUES
    assert " of dx are wrong" in report.cause


def test_a_stub_is_not_started(tmp_path: Path) -> None:
    (tmp_path / "deliverable.py").write_text(CHOSEN[0].stub[".py"])
    assert grade_deliverable(CHOSEN[0], tmp_path / "deliverable.py").verdict is Verdict.NOT_STARTED


@pytest.mark.parametrize("twist", ALL_TWISTS, ids=lambda twist: twist.name)
def test_float32_is_accurate_enough_and_bfloat16_is_not(twist: DeliverableVariant) -> None:
    """The float32 operators of PyTorch stay within half of the tolerance; bfloat16 gradients exceed the tolerance."""
    exercise = twist.exercise
    assert exercise.baseline is not None
    for case in exercise.cases:
        for variety in (PLAIN, EXTREME):
            inputs = generate_inputs(exercise, case, 1, "cpu", variety)
            expected = exercise.reference(*inputs)
            assert all(tensor.isfinite().all() for tensor in expected)
            for out, right in zip(exercise.baseline(*(tensor.float() for tensor in inputs)), expected, strict=True):
                bound = 5e-5 * right.abs() + 2.5e-4 * right.square().mean().sqrt()
                assert ((out - right).abs() <= bound).all(), (case, variety)
    inputs = generate_inputs(exercise, exercise.largest, 1, "cpu")
    bfloat16_outputs = exercise.baseline(*(tensor.bfloat16() for tensor in inputs))
    assert (
        check_outputs(
            [tensor.float() for tensor in bfloat16_outputs], list(exercise.reference(*inputs)), exercise.tolerance
        )
        is not None
    )


@pytest.mark.parametrize("last", ["rows", "columns", *(meeting.name for meeting in MEETINGS)])
@pytest.mark.parametrize("operator", [operator.name for operator in OPERATORS])
@pytest.mark.parametrize("activation", [activation.name for activation in ACTIVATIONS])
def test_the_reference_follows_the_statement(operator: str, activation: str, last: str) -> None:
    """Evaluate the lines of the statement in a loop over the vectors and compare with the reference."""
    twist = BY_NAME[f"{operator}+{activation}+{last}"]
    x, *optional, dy = generate_inputs(twist.exercise, {"count": 3, "length": 5, "dtype": "float32"}, 1, "cpu")
    y = twist.exercise.reference(x, *optional, dy)[0]
    lines = [
        next((part.line for part in parts if part.name == name), "")
        for parts, name in ((ACTIVATIONS, activation), (MEETINGS, last), (OPERATORS, operator))
    ]
    first, second, third = (line.partition(" = ")[2].replace("^", "**") for line in lines)
    by_columns = last == "columns"
    vectors = [(tensor.double().T if by_columns else tensor.double()) for tensor in (x, *optional)]
    for values, row in zip(zip(*vectors, strict=True), y.T if by_columns else y, strict=True):
        h = torch.stack([eval(first, {**FUNCTIONS, "x": value}) for value in values[0]])
        if optional:
            h = eval(second, {"a": h, "other": values[1]})
        torch.testing.assert_close(row, eval(third, {**VECTOR_FUNCTIONS, "h": h}))
    for line in lines:
        assert line.partition(" = ")[2] in twist.stub[".py"]
    assert max(map(len, twist.stub[".py"].splitlines())) <= 80


FUNCTIONS: dict[str, Any] = {
    "tanh": torch.tanh,
    "exp": torch.exp,
    "min": lambda a, b: torch.tensor(min(float(a), b), dtype=torch.float64),
    "max": max,
}
VECTOR_FUNCTIONS: dict[str, Any] = {
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": lambda x: torch.sqrt(x),
    "sum": torch.sum,
    "mean": torch.mean,
    "max": lambda x, minimum: x.clamp(min=minimum),
}


def test_each_list_has_thirty_variants() -> None:
    assert len(BY_NAME) == len(TWISTS) + len(FUSED_TWISTS) == 60
    assert math.prod((len(OPERATORS), len(ACTIVATIONS), 2)) == 30
