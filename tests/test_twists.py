"""Test the variants of the tiled GEMM: each is solvable and graded correctly, and no published kernel solves it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernelpath.course import registry
from kernelpath.course.checkpoint import DeliverableVariant
from kernelpath.course.inputs import EXTREME, generate_inputs
from kernelpath.course.problems.matmul_twists import EPILOGUES, OPERANDS, TILES, TWISTS
from kernelpath.course.registry import Deliverable
from kernelpath.grading import grade
from kernelpath.grading.compare import check_outputs
from kernelpath.verdict import Report, Verdict

from . import twisted

# These variants cover all kinds of operands, all epilogues, and all tiles.
CHOSEN = [TWISTS[place] for place in (0, 17, 30, 46)]


def grade_deliverable(twist: DeliverableVariant, file: Path) -> Report:
    item = registry.exercise_ref(registry.root(), f"1_architecture/deliverable:{twist.name}")
    assert isinstance(item, Deliverable)
    return grade.grade(item, file, device="cpu", seed=3)


def test_the_chosen_variants_cover_all_operands_epilogues_and_tiles() -> None:
    parts = [twist.name.split("+") for twist in CHOSEN]
    counts = [len(set(axis)) for axis in zip(*parts, strict=True)]
    assert counts == [len(OPERANDS), len(EPILOGUES), len(TILES)]
    assert len({twist.name for twist in TWISTS}) == 48


@pytest.mark.parametrize("twist", CHOSEN, ids=lambda twist: twist.name)
def test_a_tiled_kernel_passes(twist: DeliverableVariant, tmp_path: Path) -> None:
    report = grade_deliverable(twist, twisted.write(twist, tmp_path, tiled=True))
    assert (report.verdict, report.cause) == (Verdict.PASSED, "")
    assert report.exercise == f"1_architecture/deliverable:{twist.name}"


def test_a_correct_kernel_without_tiles_has_too_much_traffic(tmp_path: Path) -> None:
    report = grade_deliverable(CHOSEN[1], twisted.write(CHOSEN[1], tmp_path, tiled=False))
    assert report.verdict is Verdict.TOO_MUCH_TRAFFIC
    assert all(case.verdict.passed for case in report.cases)


def test_a_wrong_block_size_is_reported(tmp_path: Path) -> None:
    report = grade_deliverable(CHOSEN[0], twisted.write(CHOSEN[0], tmp_path, tiled=True, tile=(16, 32)))
    assert report.verdict is Verdict.WRONG_VALUES
    assert "launches blocks of (32, 16, 1) threads, (24, 24, 1) are required" in report.cause


def test_a_missing_barrier_is_a_race(tmp_path: Path) -> None:
    report = grade_deliverable(CHOSEN[0], twisted.write(CHOSEN[0], tmp_path, tiled=True, barrier=";"))
    assert report.verdict is Verdict.RACE


@pytest.mark.parametrize("twist", CHOSEN, ids=lambda twist: twist.name)
def test_the_published_solution_of_matmul_tiled_fails(twist: DeliverableVariant) -> None:
    report = grade_deliverable(twist, registry.find("matmul_tiled").solution)
    assert not report.verdict.passed
    assert not any(case.verdict.passed for case in report.cases)


@pytest.mark.parametrize("twist", TWISTS, ids=lambda twist: twist.name)
def test_the_reference_of_each_variant_follows_its_statement(twist: DeliverableVariant) -> None:
    """Evaluate the formula in loops over the indices. The plain product must not pass as an answer."""
    operands, epilogue, rows, columns = twisted.parse_parts(twist)
    case = {"m": 5, "n": 7, "k": 6}
    a, b, *optional_inputs = generate_inputs(twist.exercise, case, 1, "cpu")
    names = [argument.name for argument in (*epilogue.further, *operands.further)]
    inputs_by_name = dict(zip(names, optional_inputs, strict=True))
    reference = twist.exercise.reference(a, b, *optional_inputs)
    assert isinstance(reference, torch.Tensor)
    term = compile(operands.term, "term", "eval")
    end = compile(epilogue.formula.replace("{sum}", "total"), "formula", "eval")
    scope = {
        "a": a.double(),
        "b": b.double(),
        "k": 6,
        "max": lambda minimum, value: value.clamp(min=minimum),
        **inputs_by_name,
    }
    scope["B"] = lambda j, column: b[j, column].double() if j < 6 else inputs_by_name["pad"]
    for name, value in inputs_by_name.items():
        scope[name] = value.double() if isinstance(value, torch.Tensor) else value
    expected = torch.empty(5, 7, dtype=torch.float64)
    for row in range(5):
        for column in range(7):
            place = {**scope, "row": row, "column": column}
            place["a"], place["b"] = Indexed(a.double()), Indexed(b.double())
            total = sum(eval(term, {**place, "i": i}) for i in range(6))
            expected[row, column] = eval(end, {**place, "total": total})
    torch.testing.assert_close(reference, expected)
    published = (a if operands.a == "mk" else a.T).double() @ (b if operands.b == "kn" else b.T).double()
    tolerance = twist.exercise.tolerance
    assert check_outputs([reference.float()], [reference], tolerance) is None
    assert check_outputs([published.float()], [reference], tolerance) is not None
    assert twist.exercise.block == (columns, rows, 1)
    for text in (f"{columns} x {rows} threads", operands.term, *names):
        assert text in twist.stub[".py"]
    assert max(map(len, twist.stub[".py"].splitlines())) <= 80


class Indexed:
    """Index a matrix or a vector with the syntax of the statement."""

    def __init__(self, values: torch.Tensor) -> None:
        self.values = values

    def __getitem__(self, place: object) -> torch.Tensor:
        return self.values[place]  # type: ignore[index]


@pytest.mark.parametrize("twist", TWISTS, ids=lambda twist: twist.name)
def test_extreme_inputs_have_an_unambiguous_result(twist: DeliverableVariant) -> None:
    """Infinities must not cancel: max(0, NaN) may be NaN or 0, depending on the implementation."""
    inputs = generate_inputs(twist.exercise, {"m": 9, "n": 8, "k": 7}, 1, "cpu", EXTREME)
    reference = twist.exercise.reference(*inputs)
    assert isinstance(reference, torch.Tensor)
    assert not reference.isnan().any()
    assert reference[-1].isinf().any()
    assert reference[:-1].isfinite().all()


def test_a_stub_is_not_started(tmp_path: Path) -> None:
    for suffix, text in CHOSEN[0].stub.items():
        (tmp_path / f"deliverable{suffix}").write_text(text)
    assert grade_deliverable(CHOSEN[0], tmp_path / "deliverable.py").verdict is Verdict.NOT_STARTED
