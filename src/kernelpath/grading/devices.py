"""What grades a submission: a GPU, or without one the PTX machine."""

from __future__ import annotations

import platform
from typing import Literal

import torch

from kernelpath.course.spec import Exercise
from kernelpath.grading.workers import OneDevice
from kernelpath.simt.target import TARGETS, Target, of_gpu
from kernelpath.work.runner import Usage

Device = Literal["auto", "cpu", "cuda"]

OLDEST = (7, 5)
"""The least compute capability that the compilers of CUDA 13 still know."""


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
    found = torch.cuda.get_device_capability() if device == "cuda" else divmod(target.capability, 10)
    if found == needed or (found > needed and not exercise.specific):
        return ""
    wanted = f"sm_{needed[0]}{needed[1]}"
    if exercise.specific:
        wanted += "a, whose instructions later GPUs do not all have"
    has = f"{'this GPU' if device == 'cuda' else 'the PTX machine'} has sm_{found[0]}{found[1]}"
    return f"needs {wanted}, {has}; not run"
