"""The number of threads that run the blocks of a launch, and the cores that the system leaves to this process."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

__all__ = ["THREADS", "check_threads", "control_groups", "default_threads", "usable_cores"]

# The variable of the environment that sets the number of threads.
THREADS = "WARPCHECK_THREADS"
# Variables that pytest-xdist sets in its workers, each of which is meant for one core.
_SIDE_BY_SIDE = ("PYTEST_XDIST_WORKER",)
_ROOT = Path("/")


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
    return _cached_cores()


def control_groups(controller: str, root: Path = _ROOT) -> Iterator[Path]:
    """Yield the folders of the groups that limit this process, innermost first, of version 2 and version 1.

    Args:
        controller: What is limited, such as "cpu" or "memory".
        root: The root of the file system, which tests replace.
    """
    mounted = root / "sys/fs/cgroup"
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and controller not in controllers.split(","):
                continue
            top = mounted / controller if controllers else mounted
            group = top / path.lstrip("/")
            while group.is_relative_to(top):  # inside a container some of these folders do not exist
                yield group
                group = group.parent


def usable_cores(root: Path = _ROOT) -> int:
    """Return the number of cores that its affinity and the quotas of its control groups allow this process."""
    cores = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    for group in control_groups("cpu", root):
        with contextlib.suppress(OSError, ValueError):  # "max" is not a number: there is no quota
            microseconds, period = (group / "cpu.max").read_text().split()
            cores = min(cores, int(microseconds) / int(period))
        with contextlib.suppress(OSError, ValueError):
            quota = int((group / "cpu.cfs_quota_us").read_text())  # -1 for none
            if quota > 0:
                cores = min(cores, quota / int((group / "cpu.cfs_period_us").read_text()))
    return max(1, int(cores))


# A launch asks for it, and the quotas of a process hardly ever change.
_cached_cores = cache(usable_cores)
