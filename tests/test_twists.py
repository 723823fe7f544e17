"""The twists of the tiled product: each can be solved and is graded right, and no published kernel is an answer."""

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

# Among them all ways to give the operands, all epilogues and all tiles.
CHOSEN = [TWISTS[place] for place in (0, 17, 30, 46)]


def graded(twist: DeliverableVariant, file: Path) -> Report:
    item = registry.exercise_ref(registry.root(), f"1_architecture/deliverable:{twist.name}")
    assert isinstance(item, Deliverable)
    return grade.grade(item, file, device="cpu", seed=3)


def test_the_chosen_ones_cover_the_axes() -> None:
    parts = [twist.name.split("+") for twist in CHOSEN]
    counts = [len(set(axis)) for axis in zip(*parts, strict=True)]
    assert counts == [len(OPERANDS), len(EPILOGUES), len(TILES)]
    assert len({twist.name for twist in TWISTS}) == 48


@pytest.mark.parametrize("twist", CHOSEN, ids=lambda twist: twist.name)
def test_a_tiled_kernel_passes(twist: DeliverableVariant, tmp_path: Path) -> None:
    report = graded(twist, twisted.write(twist, tmp_path, tiled=True))
    assert (report.verdict, report.cause) == (Verdict.PASSED, "")
    assert report.exercise == f"1_architecture/deliverable:{twist.name}"


def test_a_kernel_without_tiles_is_right_and_moves_too_much(tmp_path: Path) -> None:
    report = graded(CHOSEN[1], twisted.write(CHOSEN[1], tmp_path, tiled=False))
    assert report.verdict is Verdict.TOO_MUCH_TRAFFIC
    assert all(case.verdict.passed for case in report.cases)


def test_another_block_than_prescribed_is_named(tmp_path: Path) -> None:
    report = graded(CHOSEN[0], twisted.write(CHOSEN[0], tmp_path, tiled=True, tile=(16, 32)))
    assert report.verdict is Verdict.WRONG_VALUES
    assert "launches blocks of (32, 16, 1) threads, (24, 24, 1) are required" in report.cause


def test_faults_get_their_verdicts(tmp_path: Path) -> None:
    report = graded(CHOSEN[0], twisted.write(CHOSEN[0], tmp_path, tiled=True, barrier=";"))
    assert report.verdict is Verdict.RACE


@pytest.mark.parametrize("twist", CHOSEN, ids=lambda twist: twist.name)
def test_the_published_solution_fails(twist: DeliverableVariant) -> None:
    report = graded(twist, registry.find("matmul_tiled").solution)
    assert not report.verdict.passed
    assert not any(case.verdict.passed for case in report.cases)


@pytest.mark.parametrize("twist", TWISTS, ids=lambda twist: twist.name)
def test_the_truth_of_each_is_what_its_statement_says(twist: DeliverableVariant) -> None:
    """By loops over the indices, as the formula is written; the plain product is no answer, nor are its neighbors."""
    operands, epilogue, rows, columns = twisted.parts(twist)
    case = {"m": 5, "n": 7, "k": 6}
    a, b, *others = generate_inputs(twist.exercise, case, 1, "cpu")
    names = [one.name for one in (*epilogue.further, *operands.further)]
    given = dict(zip(names, others, strict=True))
    truth = twist.exercise.reference(a, b, *others)
    assert isinstance(truth, torch.Tensor)
    term = compile(operands.term, "term", "eval")
    end = compile(epilogue.formula.replace("{sum}", "total"), "formula", "eval")
    scope = {"a": a.double(), "b": b.double(), "k": 6, "max": lambda least, value: value.clamp(min=least), **given}
    scope["B"] = lambda j, column: b[j, column].double() if j < 6 else given["pad"]
    for name, value in given.items():
        scope[name] = value.double() if isinstance(value, torch.Tensor) else value
    wanted = torch.empty(5, 7, dtype=torch.float64)
    for row in range(5):
        for column in range(7):
            place = {**scope, "row": row, "column": column}
            place["a"], place["b"] = Indexed(a.double()), Indexed(b.double())
            total = sum(eval(term, {**place, "i": i}) for i in range(6))
            wanted[row, column] = eval(end, {**place, "total": total})
    torch.testing.assert_close(truth, wanted)
    published = (a if operands.a == "mk" else a.T).double() @ (b if operands.b == "kn" else b.T).double()
    tolerance = twist.exercise.tolerance
    assert check_outputs([truth.float()], [truth], tolerance) is None
    assert check_outputs([published.float()], [truth], tolerance) is not None
    assert twist.exercise.block == (columns, rows, 1)
    for text in (f"{columns} x {rows} threads", operands.term, *names):
        assert text in twist.stub[".py"]
    assert max(map(len, twist.stub[".py"].splitlines())) <= 80


class Indexed:
    """A matrix or a vector, indexed as the statement does."""

    def __init__(self, values: torch.Tensor) -> None:
        self.values = values

    def __getitem__(self, place: object) -> torch.Tensor:
        return self.values[place]  # type: ignore[index]


@pytest.mark.parametrize("twist", TWISTS, ids=lambda twist: twist.name)
def test_extreme_inputs_leave_one_answer(twist: DeliverableVariant) -> None:
    """No infinity meets another, whose difference max(0, x) could turn into either NaN or 0."""
    inputs = generate_inputs(twist.exercise, {"m": 9, "n": 8, "k": 7}, 1, "cpu", EXTREME)
    truth = twist.exercise.reference(*inputs)
    assert isinstance(truth, torch.Tensor)
    assert not truth.isnan().any()
    assert truth[-1].isinf().any()
    assert truth[:-1].isfinite().all()


def test_a_stub_is_not_started(tmp_path: Path) -> None:
    for suffix, text in CHOSEN[0].stub.items():
        (tmp_path / f"deliverable{suffix}").write_text(text)
    assert graded(CHOSEN[0], tmp_path / "deliverable.py").verdict is Verdict.NOT_STARTED
