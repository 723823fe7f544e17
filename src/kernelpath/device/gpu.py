"""A GPU as its driver describes it: its name, and which processes use it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

from kernelpath.simt.since import target_with
from kernelpath.simt.target import SM_80, SM_90A, TARGETS, Target

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

chosen_by = 'kernelpath.device.gpu.stand_for({}, "NAME")'
"""The call that chooses a target in this process, with its name left open."""


def properties() -> Properties:
    """Of the GPU in use."""
    import torch

    found = torch.cuda.get_device_properties()
    named = {name: getattr(found, name) for name in dir(found) if not name.startswith("_")}
    return {name: value for name, value in named.items() if isinstance(value, (int, float, str))}


def show(told: Properties, stands_for: str | Target = SM_80.name) -> None:
    """Let this process, which has no GPU, compile for a target and see the properties of a GPU.

    told: those that are known of it; a grid may depend on them. Raises KeyError for a name that is none of TARGETS.
    """
    import torch

    stand_for(told, stands_for)
    seen = SimpleNamespace(**_shown)
    torch.cuda.get_device_properties = lambda device=None: seen  # type: ignore[assignment, return-value]
    torch.cuda.get_device_capability = lambda device=None: (seen.major, seen.minor)
    torch.cuda.get_device_name = lambda device=None: seen.name
    torch.cuda.current_device = lambda: 0


def stand_for(told: Properties, whom: str | Target) -> None:
    """Let the PTX machine stand for a target, or the one of this name, and for a GPU with such properties."""
    global _target, _shown
    _target = TARGETS[whom] if isinstance(whom, str) else whom
    _shown = {**MODELS.get(_target.name, {}), **told}


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


@dataclass(frozen=True)
class Neighbor:
    """Another process on a GPU, which makes times noisy."""

    pid: int
    detail: str

    @property
    def told(self) -> str:
        return f"process {self.pid} ({self.detail}) also uses the GPU and makes times noisy"


def noise(found: Sequence[Neighbor]) -> str:
    """What other processes on a GPU, of which there are some, do to times."""
    if len(found) == 1:
        return found[0].told
    numbers = ", ".join(str(one.pid) for one in found)
    return f"{len(found)} other processes ({numbers}) also use the GPU and make times noisy"


def neighbors(ours: Collection[int] = (), gpu: str | None = None) -> Iterator[Neighbor]:
    """Other processes on a GPU, or on any. ours: processes of the grader besides this one."""
    which = [] if gpu is None else [f"--id={gpu}"]
    for line in nvidia_smi("--query-compute-apps=pid,process_name,used_memory", *which):
        pid, _, rest = line.partition(", ")
        if pid.isdigit() and int(pid) not in (os.getpid(), *ours):
            yield Neighbor(int(pid), rest)


def gpu_id(index: int | None = None) -> str:
    """The name by which the driver knows a GPU, that in use where no index is given."""
    import torch

    return f"GPU-{torch.cuda.get_device_properties(index).uuid}"


def driver() -> str:
    """The driver's version; "unknown" where nvidia-smi does not answer."""
    return (nvidia_smi("--query-gpu=driver_version") or ["unknown"])[0]


def nvidia_smi(*query: str) -> list[str]:
    """The rows of a query; none where nvidia-smi does not answer."""
    try:
        command = ["nvidia-smi", *query, "--format=csv,noheader"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]
