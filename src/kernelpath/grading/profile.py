"""Check which kernels the GPU ran: the submission's own, and those that the PTX machine ran."""

from __future__ import annotations

from collections.abc import Sequence

from kernelpath.course.problem import Case
from kernelpath.course.spec import Exercise
from kernelpath.grading import memory, provenance
from kernelpath.grading.cpu_shadow import CpuShadow
from kernelpath.grading.ground_truth import derive_seed
from kernelpath.verdict import Finding
from kernelpath.work import messages
from kernelpath.work.runner import Runner

PROFILE_SECONDS = 60.0
"""The time limit for loading a profiler and for two calls."""


def check_gpu_run(
    exercise: Exercise,
    runner: Runner,
    cpu_shadow: CpuShadow | None,
    largest: Case,
    operators: Sequence[messages.OperatorCall],
    seed: int,
) -> Finding | None:
    """Return a finding about the kernels and the memory of two calls on the GPU.

    The calls are at the size that is timed, where there is one, and at the size that the PTX machine has run. At the
    former size the memory that the call holds is checked as well.

    Args:
        exercise: The exercise.
        runner: The submission on the GPU.
        cpu_shadow: The submission on the PTX machine.
        largest: The case that the PTX machine has run.
        operators: The operators that the submission called on the GPU.
        seed: Generates the inputs.

    Raises:
        SubmissionFailed: A call did not return.
    """
    on_machine = cpu_shadow.operators if cpu_shadow else ()
    if finding := provenance.check_gpu_operators(operators, on_machine, exercise.entry):
        return finding
    timed_case = exercise.bench or largest
    timed_profile = _profile(runner, timed_case, seed)
    if cpu_shadow is not None and (finding := cpu_shadow.check_gpu_launches(_profile(runner, largest, seed))):
        return finding
    own_kernels = (*timed_profile.launches, *timed_profile.library)
    library_share = provenance.check_library_share(timed_profile.kernels, own_kernels)
    return library_share or memory.check_workspace(exercise, timed_case, timed_profile.workspace)


def _profile(runner: Runner, case: Case, seed: int) -> messages.ProfileResult:
    request = messages.Profile(case=dict(case), seed=derive_seed(seed, "profile"))
    return runner.request(request, messages.ProfileResult, PROFILE_SECONDS)
