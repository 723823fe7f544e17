"""Test the variants of the Hopper GEMM: solvable, graded correctly, and covered by checks of asynchronous accesses."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from kernelpath.course import registry
from kernelpath.course.checkpoint import DeliverableVariant
from kernelpath.course.inputs import generate_inputs
from kernelpath.course.problems import hopper_twists
from kernelpath.course.registry import Deliverable
from kernelpath.grading import grade
from kernelpath.verdict import Report, Verdict

from . import twisted_hopper

BY_NAME = {twist.name: twist for twist in hopper_twists.TWISTS}
CHOSEN = ("nt+scaled_rows+bfloat16", "tn+capped+float16")


def grade_variant(name: str, file: Path) -> Report:
    item = registry.exercise_ref(registry.root(), f"5_cute/deliverable:{name}")
    assert isinstance(item, Deliverable)
    return grade.grade(item, file, device="cpu", seed=3)


def test_the_variants_combine_all_parts() -> None:
    parts = [name.split("+") for name in BY_NAME]
    assert [len(set(axis)) for axis in zip(*parts, strict=True)] == [4, 4, 2]
    assert len(BY_NAME) == 32


@pytest.mark.parametrize("name", [*CHOSEN, "nt+squared_relu+float16"])
def test_one_kernel_passes(name: str, tmp_path: Path) -> None:
    report = grade_variant(name, twisted_hopper.write(BY_NAME[name], tmp_path))
    assert (report.verdict, report.cause) == (Verdict.PASSED, "")


@pytest.mark.parametrize(
    ("cut", "expected_cause"),
    [({"wait": "pass"}, "wgmma"), ({"fence": "pass"}, "fence.proxy.async")],
)
def test_a_missing_fence_or_wait_is_found(cut: dict[str, str], expected_cause: str, tmp_path: Path) -> None:
    report = grade_variant(CHOSEN[0], twisted_hopper.write(BY_NAME[CHOSEN[0]], tmp_path, **cut))
    assert not report.verdict.passed
    assert expected_cause in report.cause


@pytest.mark.parametrize("twist", hopper_twists.TWISTS, ids=lambda twist: twist.name)
def test_the_reference_equals_a_computation_by_hand(twist: DeliverableVariant) -> None:
    a, b, *further = generate_inputs(twist.exercise, {"m": 8, "n": 16, "k": 24}, 1, "cpu")
    dot_product = float(a[3].double() @ b[:, 5].double())
    scalars = [
        float(operand[3, 5] if operand.dim() == 2 else operand[3 if len(operand) == 8 else 5]) for operand in further
    ]
    _, epilogue, _ = twist.name.split("+")
    expected = {
        "residual": lambda residual: dot_product + residual,
        "scaled_rows": lambda scale, bias: scale * dot_product + bias,
        "squared_relu": lambda bias: max(0.0, dot_product + bias) ** 2,
        "capped": lambda: hopper_twists.CAP * math.tanh(dot_product / hopper_twists.CAP),
    }[epilogue](*scalars)  # type: ignore[operator]
    assert float(twist.exercise.reference(a, b, *further)[3, 5]) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("twist", hopper_twists.TWISTS, ids=lambda twist: twist.name)
def test_no_generated_input_overflows_the_output_type(twist: DeliverableVariant) -> None:
    """A correct kernel would return infinity for a value beyond the output type, and would fail."""
    largest = torch.finfo(getattr(torch, twist.name.rpartition("+")[2])).max
    for seed in range(60):
        inputs = generate_inputs(twist.exercise, {"m": 16, "n": 8, "k": 8}, seed, "cpu")
        truth = twist.exercise.reference(*inputs)
        assert isinstance(truth, torch.Tensor)
        assert float(truth.abs().max()) < largest, f"seed {seed}"
