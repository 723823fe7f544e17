"""Test the reduction of an exercise to few cases: it must keep the cases that exercise host code and limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelpath.course import registry
from kernelpath.course.registry import ExerciseRef
from tests import direct, planted
from tests.few_cases import few_cases, has_few_cases, in_few_cases, with_addresses

KERNELS = [item for item in registry.exercises() if has_few_cases(registry.load(item))]


@pytest.mark.parametrize("item", KERNELS, ids=lambda item: item.name)
def test_few_cases_have_the_largest_and_a_partial_tile(item: ExerciseRef) -> None:
    exercise = registry.load(item)
    reduced = in_few_cases(exercise)
    assert reduced.largest == exercise.largest, "the limits on counters apply to the largest case"
    assert any(size & (size - 1) for case in reduced.cases for size in case.values() if isinstance(size, int))
    assert len(reduced.cases) <= 2
    assert not reduced.limits


@pytest.mark.parametrize("item", KERNELS, ids=lambda item: item.name)
def test_few_cases_keep_random_sizes_and_large_offsets(item: ExerciseRef) -> None:
    exercise = registry.load(item)
    reduced = in_few_cases(exercise)
    assert (reduced.vary, reduced.far) == (exercise.vary, exercise.far)
    assert few_cases(exercise) == [case for case in exercise.cases if case in reduced.cases], (
        "the order of the cases must stay"
    )


@pytest.mark.parametrize("item", KERNELS, ids=lambda item: item.name)
def test_addresses_are_left_out_only_on_request(item: ExerciseRef) -> None:
    exercise = registry.load(item)
    assert in_few_cases(exercise).aligned == exercise.aligned
    reduced = in_few_cases(exercise, addresses=False)
    assert (reduced.aligned, reduced.far) == (True, ())
    assert reduced.cases == in_few_cases(exercise).cases


def test_each_exercise_has_an_honest_kernel_graded_with_all_addresses() -> None:
    root = Path(__file__).parents[1]
    graded = [honest for honest in planted.accepts(root) if honest in direct.graded(root)]
    assert {honest.exercise for honest in graded} == {
        honest.exercise for honest in graded if honest in with_addresses(root)
    }
    assert any("2^31" not in honest.why and honest not in with_addresses(root) for honest in graded)
