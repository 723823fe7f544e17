"""Test that each stub is not started and that answers and reference kernels pass; test_dev tests other invariants.

Every run calls the answers of a few exercises of each kind in few cases, and grades their stubs and negative controls;
`make weekly` does so with the others, and grades all answers and reference kernels in all cases.
"""

from __future__ import annotations

import pytest
import torch

from kernelpath.course import registry
from kernelpath.course.registry import ExerciseRef
from kernelpath.dev import controls
from kernelpath.dev.invariants import STARS_OF_AN_ANSWER
from kernelpath.grading.grade import grade
from kernelpath.verdict import Verdict
from tests import selection
from tests.conftest import Solutions
from tests.direct import FEW, Caller
from tests.few_cases import grade_in_few_cases, has_few_cases

ITEMS = registry.exercises()

each_exercise = pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.solution.stem)
# Like `each_exercise`, with the mark `weekly` for all but the sentinels.
each_exercise_in_turn = pytest.mark.parametrize(
    "item",
    [
        pytest.param(
            item,
            id=item.solution.stem,
            marks=[] if item.solution.stem in selection.SENTINEL_EXERCISES else [pytest.mark.weekly],
        )
        for item in ITEMS
    ],
)
each_exercise_with_expert = pytest.mark.parametrize(
    "item", [item for item in ITEMS if item.has_expert], ids=lambda item: item.solution.stem
)


@each_exercise_in_turn
def test_the_stub_is_not_started(item: ExerciseRef) -> None:
    assert grade(item, item.stub, device="cpu").verdict is Verdict.NOT_STARTED


@each_exercise_in_turn
def test_the_answer_passes_in_few_cases(item: ExerciseRef, caller: Caller) -> None:
    exercise = registry.load(item)
    if exercise.kind == "kernel":
        outcome = caller.call(item.solution.stem, item.solution, FEW)
        assert outcome.verdict is Verdict.PASSED, f"{outcome.label}: {outcome.cause}"
        return
    if has_few_cases(exercise):
        report = grade_in_few_cases(item, item.solution, seed=1, addresses=False)
    else:
        report = grade(item, item.solution, device="cpu")
    assert report.verdict is Verdict.PASSED, report.cause


@pytest.mark.weekly
@each_exercise
def test_the_reference_kernel_passes_on_the_cpu(item: ExerciseRef, solutions: Solutions) -> None:
    report = solutions.report(item)
    assert report.verdict is Verdict.PASSED, report.cause


@pytest.mark.weekly
@each_exercise_with_expert
def test_the_answer_passes_on_the_cpu(item: ExerciseRef) -> None:
    """An answer without an expert kernel is itself the reference kernel, which the test above grades in all cases."""
    if has_few_cases(registry.load(item)):
        report = grade_in_few_cases(item, item.solution, seed=1, addresses=True)
    else:
        report = grade(item, item.solution, device="cpu")
    assert report.verdict is Verdict.PASSED, report.cause


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@each_exercise
def test_the_reference_kernel_takes_all_stars_on_a_gpu(item: ExerciseRef) -> None:
    report = grade(item, item.reference, device="cuda")
    if report.verdict is Verdict.UNAVAILABLE:
        pytest.skip(report.cause)
    assert (report.verdict, report.stars) == (Verdict.PASSED, item.stars), report.cause


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@each_exercise_with_expert
def test_an_answer_takes_two_stars_on_a_gpu(item: ExerciseRef) -> None:
    report = grade(item, item.solution, device="cuda")
    if report.verdict is Verdict.UNAVAILABLE:
        pytest.skip(report.cause)
    assert report.verdict is Verdict.PASSED, report.cause
    assert report.stars >= min(item.stars, STARS_OF_AN_ANSWER), report.cause


@each_exercise_in_turn
def test_wrong_answers_are_rejected(item: ExerciseRef) -> None:
    assert list(controls.find_violations(item)) == []
