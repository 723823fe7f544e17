"""Which kernels the GPU ran: the submission's own, and those that the PTX machine ran."""

from __future__ import annotations

from collections.abc import Sequence

from kernelpath.course.problem import Case
from kernelpath.course.spec import Exercise
from kernelpath.grading import memory, provenance
from kernelpath.grading.cpu_shadow import CpuShadow
from kernelpath.grading.ground_truth import derive
from kernelpath.verdict import Finding
from kernelpath.work import messages
from kernelpath.work.runner import Runner

PROFILE_SECONDS = 60.0
"""For a profiler that is loaded and two calls."""


def check_gpu_run(
    exercise: Exercise,
    runner: Runner,
    beside: CpuShadow | None,
    largest: Case,
    operators: Sequence[messages.OperatorCall],
    seed: int,
) -> Finding | None:
    """What is wrong with them, at the size that is timed where there is one, and at that which the machine has run.

    At the former size, too, whether the call holds more memory than the exercise allows.

    operators: those that it was seen to call. Raises runner.SubmissionFailed.
    """
    if found := provenance.foreign(operators, beside.operators if beside else (), exercise.entry):
        return found
    size = exercise.bench or largest
    timed = _profiled(runner, size, seed)
    if beside is not None and (different := beside.compared(_profiled(runner, largest, seed))):
        return different
    library = provenance.library_share(timed.kernels, (*timed.launches, *timed.library))
    return library or memory.check_workspace(exercise, size, timed.workspace)


def _profiled(runner: Runner, case: Case, seed: int) -> messages.ProfileResult:
    asked = messages.Profile(case=dict(case), seed=derive(seed, "profile"))
    return runner.request(asked, messages.ProfileResult, PROFILE_SECONDS)
