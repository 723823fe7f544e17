"""Test the variants of the fused operator: solvable, graded correctly, and not solved by any published kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelpath.course import registry
from kernelpath.course.checkpoint import DeliverableVariant
from kernelpath.course.inputs import EXTREME, generate_inputs
from kernelpath.course.problem import Tolerance
from kernelpath.course.problems.fused_parts import LAYOUTS, OPERATORS, STATISTICS
from kernelpath.course.problems.fused_twists import LARGEST, TWISTS
from kernelpath.course.registry import Deliverable
from kernelpath.grading import grade
from kernelpath.grading.compare import check_outputs
from kernelpath.grading.ground_truth import list_outputs, magnitudes_of
from kernelpath.verdict import Report, Verdict

from . import twisted_fusion

# Together, these variants cover all operators, all layouts, and all statistics.
CHOSEN = [TWISTS[place] for place in (0, 16, 26, 31)]


def grade_variant(twist: DeliverableVariant, file: Path) -> Report:
    item = registry.exercise_ref(registry.root(), f"2_cuda/deliverable:{twist.name}")
    assert isinstance(item, Deliverable)
    return grade.grade(item, file, device="cpu", seed=3)


def test_the_chosen_variants_cover_the_axes() -> None:
    parts = [twist.name.split("+") for twist in CHOSEN]
    counts = [len(set(axis)) for axis in zip(*parts, strict=True)]
    assert counts == [len(OPERATORS), len(LAYOUTS), len(STATISTICS)]
    assert len({twist.name for twist in TWISTS}) == 36


@pytest.mark.parametrize("twist", CHOSEN, ids=lambda twist: twist.name)
def test_one_kernel_passes(twist: DeliverableVariant, tmp_path: Path) -> None:
    report = grade_variant(twist, twisted_fusion.write(twist, tmp_path))
    assert (report.verdict, report.cause) == (Verdict.PASSED, "")
    assert report.exercise == f"2_cuda/deliverable:{twist.name}"


def test_a_kernel_that_reads_the_row_again_moves_too_much(tmp_path: Path) -> None:
    norm = next(twist for twist in CHOSEN if twist.name.startswith("layer_norm"))
    report = grade_variant(norm, twisted_fusion.write(norm, tmp_path, keep=False))
    assert report.verdict is Verdict.TOO_MUCH_TRAFFIC
    assert all(case.verdict.passed for case in report.cases)


def test_a_reduction_without_its_first_barrier_races(tmp_path: Path) -> None:
    """The sum and the sum of squares use the same shared memory."""
    norm = next(twist for twist in CHOSEN if twist.name.startswith("layer_norm"))
    assert grade_variant(norm, twisted_fusion.write(norm, tmp_path, barrier=";")).verdict is Verdict.RACE


@pytest.mark.parametrize(("name", "twist"), [("softmax", CHOSEN[0]), ("gelu", CHOSEN[1])])
def test_a_published_solution_fails(name: str, twist: DeliverableVariant) -> None:
    report = grade_variant(twist, registry.find(name).solution)
    assert not report.verdict.passed
    assert not any(case.verdict.passed for case in report.cases)


@pytest.mark.parametrize("twist", TWISTS, ids=lambda twist: twist.name)
def test_the_reference_equals_the_statement(twist: DeliverableVariant) -> None:
    """Evaluate the lines of the statement literally, in loops over rows and columns, and compare the reference."""
    operator, layout, statistic = twisted_fusion.parse_parts(twist)
    rows, columns = 3, 5
    arguments = generate_inputs(twist.exercise, {"rows": rows, "columns": columns}, 1, "cpu")
    values = [value.double() if isinstance(value, torch.Tensor) else value for value in arguments]
    names = [*layout.shapes, *operator.vectors, *operator.scalars, *layout.scalars, *statistic.scalars]
    out, per_row = torch.empty(rows, columns, dtype=torch.float64), torch.empty(rows, dtype=torch.float64)
    for row in range(rows):
        scopes = [
            {**dict(zip(names, values, strict=True)), **FUNCTIONS, "row": row, "column": column, "columns": columns}
            for column in range(columns)
        ]
        for scope in scopes:
            scope["x"], scope["other"] = (eval(place, scope) for place in layout.place[:2])
            scope["h"] = value(operator.lines[0], scope)
        h = torch.tensor([scope["h"] for scope in scopes], dtype=torch.float64)
        for column, scope in enumerate(scopes):
            scope["mean"] = float((h * h if "h^2" in operator.lines[-1] else h).mean())
            scope["variance"] = float((h - h.mean()).square().mean())
            scope["y"] = value(operator.lines[1], scope)
            out[row, column] = value(statistic.lines[0], scope)
        of_row = {"sums": out[row].sum(), "largest": out[row].abs().max(), "squares": out[row].square().sum()}
        per_row[row] = of_row[statistic.name]
    truth = twist.exercise.reference(*arguments)
    torch.testing.assert_close(truth, (out.T if layout.transposed else out, per_row))
    for text in (*operator.lines, *statistic.lines, *layout.place, *names):
        assert text in twist.stub[".py"]
    assert max(map(len, twist.stub[".py"].splitlines())) <= 80


FUNCTIONS = {"tanh": math.tanh, "exp": math.exp, "sqrt": math.sqrt, "min": min, "max": max}


def value(line: str, scope: dict[str, Any]) -> float:
    """Evaluate the right-hand side of a line of a statement."""
    return float(eval(line.partition(" = ")[2].replace("^", "**"), scope))


def is_within_tolerance(outputs: Sequence[torch.Tensor], truth: Sequence[torch.Tensor], tolerance: float) -> bool:
    return check_outputs(list(outputs), list(truth), {"float32": Tolerance(tolerance, tolerance)}) is None


@pytest.mark.parametrize("twist", TWISTS, ids=lambda twist: twist.name)
def test_the_formula_in_float32_is_exact_enough(twist: DeliverableVariant) -> None:
    """The float32 baseline must pass for extreme values too, for which the reference has no NaN."""
    assert twist.exercise.baseline is not None
    for case in twist.exercise.cases:
        inputs = generate_inputs(twist.exercise, case, 1, "cpu", EXTREME)
        truth = twist.exercise.reference(*inputs)
        assert not any(output.isnan().any() for output in truth)
        assert is_within_tolerance(twist.exercise.baseline(*inputs), truth, 5e-5)


def test_a_variance_of_one_pass_fails() -> None:
    """The mean of h^2 minus the squared mean cancels in rows far from 0."""
    twist = next(variant for variant in TWISTS if variant.name == "layer_norm+side_by_side+sums")
    inputs = generate_inputs(twist.exercise, LARGEST, 1, "cpu", EXTREME)
    x_and_residual, weight, bias = inputs
    h = x_and_residual[:, : LARGEST["columns"]] + x_and_residual[:, LARGEST["columns"] :]
    mean = h.mean(1, keepdim=True)
    y = (h - mean) * torch.rsqrt(((h * h).mean(1, keepdim=True) - mean * mean).abs() + 1e-5) * weight + bias
    truths = list_outputs(twist.exercise.reference, inputs)
    magnitudes = magnitudes_of(twist.exercise, inputs)
    assert check_outputs([y, y.sum(1)], truths, twist.exercise.tolerance, magnitudes=magnitudes) is not None


def test_a_stub_is_not_started(tmp_path: Path) -> None:
    for suffix, text in CHOSEN[0].stub.items():
        (tmp_path / f"deliverable{suffix}").write_text(text)
    assert grade_variant(CHOSEN[0], tmp_path / "deliverable.py").verdict is Verdict.NOT_STARTED
