"""A GPU as its driver describes it: its name, and which processes use it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from warpcheck.simulated_gpu import Properties


def properties() -> Properties:
    """Of the GPU in use."""
    import torch

    found = torch.cuda.get_device_properties()
    named = {name: getattr(found, name) for name in dir(found) if not name.startswith("_")}
    return {name: value for name, value in named.items() if isinstance(value, (int, float, str))}


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
