"""A GPU as its driver tells of it: its name there, and who else is on it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Neighbour:
    """Another process on a GPU, which makes times noisy."""

    pid: int
    detail: str

    @property
    def told(self) -> str:
        return f"process {self.pid} ({self.detail}) is on the GPU too and makes times noisy"


def neighbours(ours: Collection[int] = (), gpu: str | None = None) -> Iterator[Neighbour]:
    """Other processes on a GPU, or on any. ours: processes of the grader besides this one."""
    which = [] if gpu is None else [f"--id={gpu}"]
    for line in nvidia_smi("--query-compute-apps=pid,process_name,used_memory", *which):
        pid, _, rest = line.partition(", ")
        if pid.isdigit() and int(pid) not in (os.getpid(), *ours):
            yield Neighbour(int(pid), rest)


def gpu_id(index: int | None = None) -> str:
    """The name by which the driver knows a GPU, that in use where no index is given."""
    import torch

    return f"GPU-{torch.cuda.get_device_properties(index).uuid}"


def driver() -> str:
    """The driver's version; "unknown" where there is none."""
    return (nvidia_smi("--query-gpu=driver_version") or ["unknown"])[0]


def nvidia_smi(*query: str) -> list[str]:
    """The rows of a query; none where nvidia-smi does not answer."""
    try:
        command = ["nvidia-smi", *query, "--format=csv,noheader"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]
