"""The twists of the product on Hopper: solvable, graded right, and by the machine's asynchronous checks."""

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


def graded(name: str, file: Path) -> Report:
    item = registry.exercise_ref(registry.root(), f"5_cute/deliverable:{name}")
    assert isinstance(item, Deliverable)
    return grade.grade(item, file, device="cpu", seed=3)


def test_every_twist_is_one_of_each() -> None:
    parts = [name.split("+") for name in BY_NAME]
    assert [len(set(axis)) for axis in zip(*parts, strict=True)] == [4, 4, 2]
    assert len(BY_NAME) == 32


@pytest.mark.parametrize("name", [*CHOSEN, "nt+squared_relu+float16"])
def test_one_kernel_passes(name: str, tmp_path: Path) -> None:
    report = graded(name, twisted_hopper.write(BY_NAME[name], tmp_path))
    assert (report.verdict, report.cause) == (Verdict.PASSED, "")


@pytest.mark.parametrize(
    ("cut", "said"),
    [({"wait": "pass"}, "wgmma"), ({"fence": "pass"}, "fence.proxy.async")],
)
def test_what_a_gpu_forgives_is_found(cut: dict[str, str], said: str, tmp_path: Path) -> None:
    report = graded(CHOSEN[0], twisted_hopper.write(BY_NAME[CHOSEN[0]], tmp_path, **cut))
    assert not report.verdict.passed
    assert said in report.cause


@pytest.mark.parametrize("twist", hopper_twists.TWISTS, ids=lambda twist: twist.name)
def test_the_truth_of_each_by_hand(twist: DeliverableVariant) -> None:
    a, b, *further = generate_inputs(twist.exercise, {"m": 8, "n": 16, "k": 24}, 1, "cpu")
    sum = float(a[3].double() @ b[:, 5].double())
    drawn = [float(one[3, 5] if one.dim() == 2 else one[3 if len(one) == 8 else 5]) for one in further]
    _, epilogue, _ = twist.name.split("+")
    by_hand = {
        "residual": lambda residual: sum + residual,
        "scaled_rows": lambda scale, bias: scale * sum + bias,
        "squared_relu": lambda bias: max(0.0, sum + bias) ** 2,
        "capped": lambda: hopper_twists.CAP * math.tanh(sum / hopper_twists.CAP),
    }[epilogue](*drawn)  # type: ignore[operator]
    assert float(twist.exercise.reference(a, b, *further)[3, 5]) == pytest.approx(by_hand, rel=1e-9)


@pytest.mark.parametrize("twist", hopper_twists.TWISTS, ids=lambda twist: twist.name)
def test_no_draw_overflows_the_type_of_the_output(twist: DeliverableVariant) -> None:
    """A right kernel returns infinity where the truth is beyond the type, and would be graded wrong."""
    most = torch.finfo(getattr(torch, twist.name.rpartition("+")[2])).max
    for seed in range(60):
        inputs = generate_inputs(twist.exercise, {"m": 16, "n": 8, "k": 8}, seed, "cpu")
        truth = twist.exercise.reference(*inputs)
        assert isinstance(truth, torch.Tensor)
        assert float(truth.abs().max()) < most, f"seed {seed}"
