"""The GPU that a program sees where there is none: the target to compile for, and the properties of a GPU model."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import SimpleNamespace

from warpcheck import patching
from warpcheck.since import target_with
from warpcheck.target import SM_80, SM_90A, TARGETS, Target

Properties = Mapping[str, int | float | str]
"""Of a GPU, by the names that torch.cuda.get_device_properties has for them."""

A100: Properties = {
    "name": "PTX machine",
    "major": 8,
    "minor": 0,
    "multi_processor_count": 108,
    "warp_size": 32,
    "max_threads_per_block": 1024,
    "max_threads_per_multi_processor": 2048,
    "regs_per_multiprocessor": 65536,
    "shared_memory_per_block": 48 << 10,
    "shared_memory_per_block_optin": 163 << 10,
    "shared_memory_per_multiprocessor": 164 << 10,
    "L2_cache_size": 40 << 20,
    "total_memory": 40 << 30,
}
"""Source: CUDA C++ Programming Guide, technical specifications of 8.0."""

H200: Properties = {
    **A100,
    "major": 9,
    "multi_processor_count": 132,
    "shared_memory_per_block_optin": 227 << 10,
    "shared_memory_per_multiprocessor": 228 << 10,
    "L2_cache_size": 60 << 20,
    "total_memory": 139 << 30,
}
"""Source: the same of 9.0, and what an H200's driver says."""

MODELS: Mapping[str, Properties] = {SM_80.name: A100, SM_90A.name: H200}
"""What a program sees where there is no GPU, by the target that the PTX machine stands for."""

_target, _shown = SM_80, A100

chosen_by = 'warpcheck.simulated_gpu.stand_for({}, "NAME")'
"""The call that chooses a target in this process, with its name left open."""


def show(told: Properties, stands_for: str | Target = SM_80.name) -> None:
    """Let this process, which has no GPU, compile for a target and see the properties of a GPU.

    told: those that are known of it; a grid may depend on them. Raises KeyError for a name that is none of TARGETS.
    """
    import torch

    stand_for(told, stands_for)
    seen = SimpleNamespace(**_shown)
    patching.replace(torch.cuda, "get_device_properties", lambda device=None: seen)
    patching.replace(torch.cuda, "get_device_capability", lambda device=None: (seen.major, seen.minor))
    patching.replace(torch.cuda, "get_device_name", lambda device=None: seen.name)
    patching.replace(torch.cuda, "current_device", lambda: 0)


def stand_for(told: Properties, whom: str | Target) -> None:
    """Let the PTX machine stand for a target, or the one of this name, and for a GPU with such properties."""
    global _target, _shown
    patching.on_exit(partial(_restore, _target, _shown))
    _target = TARGETS[whom] if isinstance(whom, str) else whom
    _shown = {**MODELS.get(_target.name, {}), **told}


def _restore(target: Target, properties: Properties) -> None:
    global _target, _shown
    _target = target
    _shown = properties


def describe_choice(missing: str, choice: str = "") -> str:
    """Say how to choose a target that has what ptxas misses; empty where there is none, or the cause is another.

    missing: the words of ptxas. choice: what chooses a target, where it is not a call in this process.
    """
    name = target_with(missing)
    if not name:
        return ""
    how = (choice or chosen_by).replace("NAME", name)
    return f"; the PTX machine stands for {_target.name} here, and for {name} with {how}"


def target() -> Target:
    """What the PTX machine stands for, and lanes compile for where there is no GPU: as `show` was told."""
    return _target


def shown() -> Properties:
    """What `show` was told, or what there is without."""
    return _shown
