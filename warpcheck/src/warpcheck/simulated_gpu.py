"""The GPU that a program sees on a machine without one: the compilation target and the properties of a GPU model."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING

from warpcheck import patching
from warpcheck.isa_availability import target_with
from warpcheck.target import SM_80, SM_90A, SM_100A, TARGETS, Target

if TYPE_CHECKING:
    import torch

# Properties of a GPU, by their names in torch.cuda.get_device_properties.
Properties = Mapping[str, int | float | str]

# Reference: CUDA C++ Programming Guide, technical specifications of compute capability 8.0.
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

# Reference: the technical specifications of compute capability 9.0, and the properties of an H200 in its driver.
H200: Properties = {
    **A100,
    "major": 9,
    "multi_processor_count": 132,
    "shared_memory_per_block_optin": 227 << 10,
    "shared_memory_per_multiprocessor": 228 << 10,
    "L2_cache_size": 60 << 20,
    "total_memory": 139 << 30,
}

# Reference: the technical specifications of compute capability 10.0; not read from a GPU.
B200: Properties = {
    **H200,
    "major": 10,
    "multi_processor_count": 148,
    "L2_cache_size": 126 << 20,
    "total_memory": 180 << 30,
}

# The properties that a program sees without a GPU, by the target of the PTX machine.
MODELS: Mapping[str, Properties] = {SM_80.name: A100, SM_90A.name: H200, SM_100A.name: B200}

_target = SM_80
_properties = A100

# The call that chooses a target in this process, with its name left open.
chosen_by = 'warpcheck.simulated_gpu.stand_for({}, "NAME")'


def show(properties: Properties, target: str | Target = SM_80.name) -> None:
    """Let this process, which has no GPU, compile for a target and see the properties of a GPU in torch.cuda.

    Args:
        properties: The properties that differ from those of the target's GPU model. A grid may depend on them.
        target: A target or its name in TARGETS. Raises KeyError for an unknown name.
    """
    import torch

    stand_for(properties, target)
    device_properties = SimpleNamespace(**_properties)
    capability = device_properties.major, device_properties.minor
    patching.replace(torch.cuda, "get_device_properties", lambda device=None: device_properties)
    patching.replace(torch.cuda, "get_device_capability", lambda device=None: capability)
    patching.replace(torch.cuda, "get_device_name", lambda device=None: device_properties.name)
    # The original initializes CUDA, which fails without a GPU.
    patching.replace(torch.cuda, "current_device", lambda: 0)


def stand_for(properties: Properties, target: str | Target) -> None:
    """Let the PTX machine simulate a target, and a GPU with these properties. Raises KeyError for an unknown name."""
    global _target, _properties
    patching.on_exit(partial(_restore, _target, _properties))
    _target = TARGETS[target] if isinstance(target, str) else target
    _properties = {**MODELS.get(_target.name, {}), **properties}


def _restore(target: Target, properties: Properties) -> None:
    global _target, _properties
    _target = target
    _properties = properties


def describe_choice(ptxas_error: str, choice: str = "") -> str:
    """Describe how to choose a target with the feature that ptxas misses; empty if no target has it.

    Args:
        ptxas_error: The text of the error of ptxas.
        choice: The text that chooses a target, with NAME for the target; by default the call `chosen_by`.
    """
    name = target_with(ptxas_error)
    if not name:
        return ""
    how = (choice or chosen_by).replace("NAME", name)
    return f"; the PTX machine stands for {_target.name} here, and for {name} with {how}"


_has_cuda_tensors = False


def simulate_cuda_tensors() -> None:
    """Declare that the CUDA tensors of this process are those of `frontends.torch_cuda`, until the scope ends."""
    global _has_cuda_tensors
    patching.on_exit(_end_cuda_tensors)
    _has_cuda_tensors = True


def _end_cuda_tensors() -> None:
    global _has_cuda_tensors
    _has_cuda_tensors = False


def has_cuda_tensors() -> bool:
    """Return whether CUDA tensors are simulated."""
    return _has_cuda_tensors


def is_host_memory(device: torch.device) -> bool:
    """Return whether tensors of a device are in this process's memory, where the PTX machine runs kernels on them."""
    return device.type == "cpu" or (device.type == "cuda" and _has_cuda_tensors)


def target() -> Target:
    """Return the target of the PTX machine, for which front ends compile without a GPU."""
    return _target


def shown() -> Properties:
    """Return the properties of the simulated GPU."""
    return _properties
