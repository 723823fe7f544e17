"""Query the GPU's driver: properties, names, and the processes that use the GPU."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from warpcheck.simulated_gpu import Properties


def properties() -> Properties:
    """Return the properties of the current GPU."""
    import torch

    properties = torch.cuda.get_device_properties()
    values = {name: getattr(properties, name) for name in dir(properties) if not name.startswith("_")}
    return {name: value for name, value in values.items() if isinstance(value, (int, float, str))}


@dataclass(frozen=True)
class Neighbor:
    """Another process on a GPU, which makes times noisy."""

    pid: int
    detail: str

    @property
    def description(self) -> str:
        """Return a sentence for the learner."""
        return f"process {self.pid} ({self.detail}) also uses the GPU and makes times noisy"


def noise(processes: Sequence[Neighbor]) -> str:
    """Return the warning that other processes on a GPU make times noisy. There must be at least one."""
    if len(processes) == 1:
        return processes[0].description
    numbers = ", ".join(str(process.pid) for process in processes)
    return f"{len(processes)} other processes ({numbers}) also use the GPU and make times noisy"


def neighbors(ours: Collection[int] = (), gpu: str | None = None) -> Iterator[Neighbor]:
    """Yield the other processes on a GPU.

    Args:
        ours: Further processes of the grader, which are left out.
        gpu: The driver's identifier of the GPU; None for all GPUs.
    """
    selection = [] if gpu is None else [f"--id={gpu}"]
    for line in nvidia_smi("--query-compute-apps=pid,process_name,used_memory", *selection):
        pid, _, rest = line.partition(", ")
        if pid.isdigit() and int(pid) not in (os.getpid(), *ours):
            yield Neighbor(int(pid), rest)


def gpu_id(index: int | None = None) -> str:
    """Return the driver's identifier of a GPU, of the current GPU without an index."""
    import torch

    # The UUID that torch returns lacks the prefix that nvidia-smi and NVML expect.
    return f"GPU-{torch.cuda.get_device_properties(index).uuid}"


def driver() -> str:
    """Return the driver's version, or "unknown" where nvidia-smi does not answer."""
    return (nvidia_smi("--query-gpu=driver_version") or ["unknown"])[0]


def nvidia_smi(*query: str) -> list[str]:
    """Return the rows of a query, or an empty list where nvidia-smi does not answer."""
    try:
        command = ["nvidia-smi", *query, "--format=csv,noheader"]
        completed = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in completed.stdout.splitlines() if line.strip()]
