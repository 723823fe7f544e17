"""Grade a submission through the whole grader in few of its exercise's cases.

An honest submission is right in all cases: `make seeds` grades it in each of them every week, and the exercise's answer
is graded in each of them in every run. What another program for the same exercise adds is what its host code does, and
the grader's steps look at that in every case. So two of the declared cases suffice, beside the one whose sizes the seed
determines: the largest, to which limits on counters apply, and the smallest with a partial tile.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kernelpath.course.problem import Case
from kernelpath.course.registry import ExerciseRef
from kernelpath.course.spec import Exercise
from kernelpath.grading import grade
from kernelpath.verdict import Report


def has_few_cases(exercise: Exercise) -> bool:
    """Return whether few cases suffice: each case runs the same kernels, which need a compiler and the PTX machine."""
    return exercise.is_kernel and exercise.kind != "repair"  # each case of a repair runs a kernel of its own


def few_cases(exercise: Exercise) -> list[Case]:
    """Return the smallest case with a size that is no power of two, and the largest case, in their order.

    Return all cases of kernels to be repaired: each kernel has cases of its own.
    """
    if exercise.repairs:
        return [*exercise.cases]
    by_size = sorted(exercise.cases, key=lambda case: exercise.compulsory_bytes(**case))
    partial = next(
        case for case in by_size if any(size & (size - 1) for size in case.values() if isinstance(size, int))
    )
    return [case for case in exercise.cases if case in (partial, exercise.largest)]


def in_few_cases(exercise: Exercise) -> Exercise:
    """Return an exercise with few of its cases, and none at limits."""
    problem = replace(exercise.problem, limits=())
    return replace(exercise, problem=problem, cases=few_cases(exercise), limits=())


def grade_in_few_cases(item: ExerciseRef, submission: Path, *, seed: int) -> Report:
    """Grade a submission to an exercise with kernels on the PTX machine, in few cases and with all steps."""
    job = grade.Job.create(item, submission, device="cpu")
    with grade.Session(replace(job, exercise=in_few_cases(job.exercise))) as session:
        return session(seed=seed, brief=True)
