"""The twists of the fused operator: each can be solved and is graded right, and no published kernel is an answer."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelpath.course import registry
from kernelpath.course.checkpoint import Twist
from kernelpath.course.inputs import EXTREME, draw_inputs
from kernelpath.course.problems.fused_parts import LAYOUTS, OPERATORS, STATISTICS
from kernelpath.course.problem import Tolerance
from kernelpath.course.problems.fused_twists import LARGEST, TWISTS
from kernelpath.course.registry import Deliverable
from kernelpath.grading import grade
from kernelpath.grading.compare import judge
from kernelpath.verdict import Report, Verdict

from . import twisted_fusion

CHOSEN = [TWISTS[place] for place in (0, 16, 26, 31)]
"""Among them all operators, all layouts and all statistics."""


def graded(twist: Twist, file: Path) -> Report:
    item = registry.item(registry.root(), f"2_cuda/deliverable:{twist.name}")
    assert isinstance(item, Deliverable)
    return grade.grade(item, file, device="cpu", seed=3)


def test_the_chosen_ones_cover_the_axes() -> None:
    parts = [twist.name.split("+") for twist in CHOSEN]
    counts = [len(set(axis)) for axis in zip(*parts, strict=True)]
    assert counts == [len(OPERATORS), len(LAYOUTS), len(STATISTICS)]
    assert len({twist.name for twist in TWISTS}) == 36


@pytest.mark.parametrize("twist", CHOSEN, ids=lambda twist: twist.name)
def test_one_kernel_passes(twist: Twist, tmp_path: Path) -> None:
    report = graded(twist, twisted_fusion.write(twist, tmp_path))
    assert (report.verdict, report.cause) == (Verdict.PASSED, "")
    assert report.exercise == f"2_cuda/deliverable:{twist.name}"


def test_a_kernel_that_reads_the_row_again_moves_too_much(tmp_path: Path) -> None:
    norm = next(twist for twist in CHOSEN if twist.name.startswith("layer_norm"))
    report = graded(norm, twisted_fusion.write(norm, tmp_path, keep=False))
    assert report.verdict is Verdict.TOO_MUCH_TRAFFIC
    assert all(case.verdict.passed for case in report.cases)


def test_a_reduction_without_its_first_barrier_races(tmp_path: Path) -> None:
    """The sum and the sum of squares use the same shared memory."""
    norm = next(twist for twist in CHOSEN if twist.name.startswith("layer_norm"))
    assert graded(norm, twisted_fusion.write(norm, tmp_path, barrier=";")).verdict is Verdict.RACE


@pytest.mark.parametrize(
    "name", [name for name in ("softmax", "gelu") if name in {i.name for i in registry.exercises()}]
)
def test_a_published_solution_fails(name: str) -> None:
    for twist in CHOSEN[:2]:
        report = graded(twist, registry.find(name).solution)
        assert not report.verdict.passed
        assert not any(case.verdict.passed for case in report.cases)
