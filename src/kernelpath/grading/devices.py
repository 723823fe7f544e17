"""Choose the device that grades a submission: a GPU, or the PTX machine where there is no GPU."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch

from kernelpath.course.problem import Case
from kernelpath.course.spec import Exercise
from kernelpath.work.runner import Usage
from warpcheck.target import TARGETS, Target, of_gpu

Device = Literal["auto", "cpu", "cuda"]
OneDevice = Literal["cpu", "cuda"]

# The lowest compute capability that the compilers of CUDA 13 support.
OLDEST = (7, 5)

# The architecture that the PTX machine implements from the manual alone; see warpcheck/docs/blackwell.md.
UNCONFIRMED = "sm_100a"

# The first compute capability with instructions for bfloat16. PTX ISA manual, "cvt" and "mma".
BFLOAT16 = (8, 0)


def resolve(device: Device) -> OneDevice:
    """Return "cpu" or "cuda". Raise Usage where "cuda" is requested on a machine without a GPU."""
    if device != "cpu" and torch.cuda.is_available():
        return "cuda"
    if device == "cuda":
        raise Usage("there is no GPU that torch can use; kp doctor says why")
    return "cpu"


def choose_target(exercise: Exercise, device: OneDevice, arch: str | None) -> Target:
    """Return the architecture that the PTX machine simulates.

    That is the GPU's where there is a GPU, else `arch`, else the exercise's. For a program, it is never the GPU's: the
    PTX machine grades it also where there is a GPU, whose architecture the machine may not simulate.

    Raises:
        Usage: `arch` is given though there is a GPU.
    """
    if device == "cuda" and arch is not None:
        raise Usage("a GPU is of one architecture: --arch goes with --device cpu")
    if device == "cuda" and exercise.kind != "program":
        return of_gpu(*torch.cuda.get_device_capability())
    return TARGETS[arch or exercise.arch]


def device_name(device: OneDevice, target: Target) -> str:
    """Return the name of the device for a report."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    return f"PTX machine for {target.name} on {platform.machine()}, no GPU"


def missing_capability(exercise: Exercise, device: OneDevice, target: Target) -> str:
    """Return the reason why the device cannot run the exercise; empty where it can."""
    required = max(exercise.requires or OLDEST, OLDEST)
    capability = _capability(device, target)
    if capability == required or (capability > required and not exercise.specific):
        return ""
    requirement = f"sm_{required[0]}{required[1]}"
    if exercise.specific:
        # Code for sm_90a runs on that architecture alone, unlike code for sm_90. PTX ISA, ".target".
        requirement += "a, whose instructions later GPUs do not all have" if capability > required else "a"
    name = "this GPU" if device == "cuda" else "the PTX machine"
    return f"needs {requirement}, {name} has sm_{capability[0]}{capability[1]}; not run"


def adapt_exercise(exercise: Exercise, device: OneDevice, target: Target) -> tuple[Exercise, tuple[str, ...]]:
    """Replace bfloat16 in the cases where the device has no bfloat16, and name an architecture that nothing confirms.

    The replacement is float16 where the exercise accepts float16, else float32. An exercise that accepts neither is not
    changed; it has to require bfloat16.

    Returns:
        The exercise, and sentences for the report about the replacement and about what no GPU has confirmed.
    """
    if device == "cpu" and target.name == UNCONFIRMED and exercise.is_kernel:
        return exercise, (f"{target.name}: the PTX machine follows the manual, and no hardware has confirmed it",)
    dtype = next((dtype for dtype in ("float16", "float32") if dtype in exercise.tolerance), "")
    cases = (*exercise.cases, *exercise.limits, *([exercise.bench] if exercise.bench else []))
    is_interpreted = exercise.kind == "python"
    has_bfloat16 = is_interpreted or _capability(device, target) >= BFLOAT16
    if has_bfloat16 or not dtype or not any(map(_uses_bfloat16, cases)):
        return exercise, ()
    adapted = replace(
        exercise,
        problem=replace(exercise.problem, far=_without_bfloat16(exercise.problem.far, dtype)),
        cases=_without_bfloat16(exercise.cases, dtype),
        limits=_without_bfloat16(exercise.limits, dtype),
        gpu_limits=_without_bfloat16(exercise.gpu_limits, dtype),
        bench=exercise.bench and _without_bfloat16([exercise.bench], dtype)[0],
        sweep=_without_bfloat16(exercise.sweep, dtype),
    )
    name = _describe(device, target)
    notices = [f"bfloat16: {name} does not have it, {dtype} was taken instead"]
    if exercise.tensor_cores:
        notices.append(f"tensor cores: Triton uses none on {name}")
    return adapted, tuple(notices)


def _without_bfloat16(cases: Sequence[Case], dtype: str) -> Sequence[Case]:
    """Return the cases with `dtype` instead of bfloat16. Cases that become equal are returned once."""
    replaced = [{**case, "dtype": dtype} if _uses_bfloat16(case) else case for case in cases]
    return [case for index, case in enumerate(replaced) if case not in replaced[:index]]


def _uses_bfloat16(case: Case) -> bool:
    return case.get("dtype") == "bfloat16"


def _capability(device: OneDevice, target: Target) -> tuple[int, int]:
    return torch.cuda.get_device_capability() if device == "cuda" else divmod(target.capability, 10)


def _describe(device: OneDevice, target: Target) -> str:
    major, minor = _capability(device, target)
    return f"{'this GPU' if device == 'cuda' else 'the PTX machine'} (sm_{major}{minor})"
