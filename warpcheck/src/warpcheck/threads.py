"""The number of threads that run the blocks of a launch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache

from warpcheck.control_groups import usable_cores

__all__ = ["THREADS", "check_threads", "default_threads"]

# The variable of the environment that sets the number of threads.
THREADS = "WARPCHECK_THREADS"
# A launch asks for it, and the quotas of a process hardly ever change.
_usable_cores = cache(usable_cores)
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
    return _usable_cores()
