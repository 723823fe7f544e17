"""The number of threads that run the blocks of a launch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

__all__ = ["THREADS", "check_threads", "default_threads", "usable_cores"]

# The variable of the environment that sets the number of threads.
THREADS = "WARPCHECK_THREADS"
# Variables that pytest-xdist sets in its workers, each of which is meant for one core.
_SIDE_BY_SIDE = ("PYTEST_XDIST_WORKER",)


def check_threads(threads: int | None) -> None:
    """Raise ValueError unless a launch can have this number of threads; None is the default."""
    if threads is not None and threads < 1:
        raise ValueError(f"threads={threads}: the number of threads is at least 1")


def default_threads(environment: Mapping[str, str] | None = None) -> int:
    """Return the number of threads of a launch that does not say how many.

    It is the value of `WARPCHECK_THREADS`; 1 in a worker of pytest-xdist; otherwise the number of usable cores.

    Raises:
        ValueError: `WARPCHECK_THREADS` is no positive number.
    """
    environment = os.environ if environment is None else environment
    setting = environment.get(THREADS, "")
    if setting:
        if not setting.isdecimal() or int(setting) < 1:
            raise ValueError(f"{THREADS}={setting}: the number of threads is at least 1")
        return int(setting)
    if any(name in environment for name in _SIDE_BY_SIDE):
        return 1
    return usable_cores()


@cache
def usable_cores(root: Path = Path("/")) -> int:
    """Return the number of cores that this process may use: by its affinity, and by the quota of its control group."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for folder in _control_groups(root):
        try:
            quota, period = (folder / "cpu.max").read_text().split()
            cores = min(cores, int(quota) // int(period))
        except (OSError, ValueError):  # "max" is no number: there is no quota
            continue
    return max(1, cores)


def _control_groups(root: Path) -> list[Path]:
    """Return the folders of the control groups (version 2) that this process is in, innermost first."""
    top = root / "sys/fs/cgroup"
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return [top]
    own = next((line.removeprefix("0::/") for line in lines if line.startswith("0::")), "")
    folder = top / own
    return [folder, *(parent for parent in folder.parents if parent.is_relative_to(top))]
