"""Few cases of an exercise show what host code does, and keep what the steps of a grading need."""

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
    few = in_few_cases(exercise)
    assert few.largest == exercise.largest, "the counters are limited there"
    assert any(size & (size - 1) for case in few.cases for size in case.values() if isinstance(size, int))
    assert len(few.cases) <= 2
    assert not few.limits


@pytest.mark.parametrize("item", KERNELS, ids=lambda item: item.name)
def test_few_cases_leave_sizes_from_the_seed_and_large_offsets(item: ExerciseRef) -> None:
    exercise = registry.load(item)
    few = in_few_cases(exercise)
    assert (few.vary, few.far) == (exercise.vary, exercise.far)
    assert few_cases(exercise) == [case for case in exercise.cases if case in few.cases], "in their order"


@pytest.mark.parametrize("item", KERNELS, ids=lambda item: item.name)
def test_addresses_are_left_out_where_that_is_requested_alone(item: ExerciseRef) -> None:
    exercise = registry.load(item)
    assert in_few_cases(exercise).aligned == exercise.aligned
    few = in_few_cases(exercise, addresses=False)
    assert (few.aligned, few.far) == (True, ())
    assert few.cases == in_few_cases(exercise).cases


def test_an_honest_kernel_of_each_exercise_is_graded_with_all_addresses() -> None:
    root = Path(__file__).parents[1]
    graded = [honest for honest in planted.accepts(root) if honest in direct.graded(root)]
    assert {honest.exercise for honest in graded} == {
        honest.exercise for honest in graded if honest in with_addresses(root)
    }
    assert any("2^31" not in honest.why and honest not in with_addresses(root) for honest in graded)
