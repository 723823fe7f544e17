"""What grades a submission: a GPU, or without one the PTX machine."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch

from kernelpath.course.problem import Case
from kernelpath.course.spec import Exercise
from kernelpath.grading.workers import OneDevice
from kernelpath.work.runner import Usage
from warpcheck.target import TARGETS, Target, of_gpu

Device = Literal["auto", "cpu", "cuda"]

OLDEST = (7, 5)
"""The least compute capability that the compilers of CUDA 13 still know."""

BFLOAT16 = (8, 0)
"""The first compute capability with instructions for bfloat16. PTX ISA manual, "cvt" and "mma"."""


def resolve(device: Device) -> OneDevice:
    """ "cpu" or "cuda". Raises Usage where a GPU is asked for on a machine without one."""
    if device != "cpu" and torch.cuda.is_available():
        return "cuda"
    if device == "cuda":
        raise Usage("there is no GPU that torch can use; kp doctor says why")
    return "cpu"


def target(exercise: Exercise, device: OneDevice, arch: str | None) -> Target:
    """What the PTX machine stands for: the GPU that it is beside, else what is asked for, else what is declared.

    Raises Usage where something is asked for beside a GPU.
    """
    if device == "cuda":
        if arch is not None:
            raise Usage("a GPU is of one architecture: --arch goes with --device cpu")
        return of_gpu(*torch.cuda.get_device_capability())
    return TARGETS[arch or exercise.arch]


def name(device: OneDevice, target: Target) -> str:
    if device == "cuda":
        return torch.cuda.get_device_name()
    return f"PTX machine for {target.name} on {platform.machine()}, no GPU"


def lacking(exercise: Exercise, device: OneDevice, target: Target) -> str:
    """Why the device cannot run the exercise; empty where it can."""
    needed = max(exercise.requires or OLDEST, OLDEST)
    found = _capability(device, target)
    if found == needed or (found > needed and not exercise.specific):
        return ""
    wanted = f"sm_{needed[0]}{needed[1]}"
    if exercise.specific:
        wanted += "a, whose instructions later GPUs do not all have" if found > needed else "a"
    has = f"{'this GPU' if device == 'cuda' else 'the PTX machine'} has sm_{found[0]}{found[1]}"
    return f"needs {wanted}, {has}; not run"


def suited(exercise: Exercise, device: OneDevice, target: Target) -> tuple[Exercise, tuple[str, ...]]:
    """The exercise with another dtype for bfloat16 where the device does not have it, and what a learner has to know.

    float16 where the exercise takes it, else float32. What takes neither is as it was; it has to require bfloat16.
    """
    other = next((dtype for dtype in ("float16", "float32") if dtype in exercise.tolerance), "")
    cases = (*exercise.cases, *exercise.limits, *([exercise.bench] if exercise.bench else []))
    interpreted = exercise.kind == "python"
    if interpreted or _capability(device, target) >= BFLOAT16 or not other or not any(map(_has_bfloat16, cases)):
        return exercise, ()
    fewer = replace(
        exercise,
        problem=replace(exercise.problem, far=_without_bfloat16(exercise.problem.far, other)),
        cases=_without_bfloat16(exercise.cases, other),
        limits=_without_bfloat16(exercise.limits, other),
        gpu_limits=_without_bfloat16(exercise.gpu_limits, other),
        bench=exercise.bench and _without_bfloat16([exercise.bench], other)[0],
        sweep=_without_bfloat16(exercise.sweep, other),
    )
    found = _found(device, target)
    told = (f"bfloat16: {found} does not have it, {other} was taken instead",)
    return fewer, (*told, f"tensor cores: Triton uses none on {found}") if exercise.tensor_cores else told


def _without_bfloat16(cases: Sequence[Case], other: str) -> Sequence[Case]:
    """Each case once."""
    found = [{**case, "dtype": other} if _has_bfloat16(case) else case for case in cases]
    return [case for number, case in enumerate(found) if case not in found[:number]]


def _has_bfloat16(case: Case) -> bool:
    return case.get("dtype") == "bfloat16"


def _capability(device: OneDevice, target: Target) -> tuple[int, int]:
    return torch.cuda.get_device_capability() if device == "cuda" else divmod(target.capability, 10)


def _found(device: OneDevice, target: Target) -> str:
    major, minor = _capability(device, target)
    return f"{'this GPU' if device == 'cuda' else 'the PTX machine'} (sm_{major}{minor})"
