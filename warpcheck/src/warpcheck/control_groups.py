"""What the control groups of Linux leave to this process: their folders, and the cores that it may use."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["control_groups", "usable_cores"]

_ROOT = Path("/")


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
