"""Measure how long processes take, without the time that they wait for a processor.

A limit of seconds by the wall clock would end a correct submission on a computer that is busy with other programs: with
eight runnable threads for each processor, a second of work takes eight. A limit of processor time alone would never end
a process that sleeps. This clock does both: it follows the wall clock while a process sleeps, and its processor time
while it computes or is ready to compute.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kernelpath.work import quota

# The time between two observations of the processes, while there is nothing else to do.
POLL_SECONDS = 0.2

# The most seconds of the wall clock that pass in a second of a ProcessClock.
#
# A submission may give itself the lowest priority, and then get no processor at all on a busy computer.
MAX_STRETCH = 20.0

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """The state of processes at one moment.

    Attributes:
        processor_seconds: The processor time of each process, with that of its children that have ended, by pid.
        runnable: Whether a thread of these processes runs, or waits for a processor.
    """

    processor_seconds: dict[int, float]
    runnable: bool


class ProcessClock:
    """Runs while processes compute or sleep, and stands still while they wait for a processor.

    Args:
        pids: Returns the processes. Their descendants count as well.
        read: Returns the state of processes.
        now: Returns the wall-clock time.
    """

    def __init__(
        self,
        pids: Callable[[], Iterable[int]],
        read: Callable[[Iterable[int]], Usage] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pids = pids
        self._read = read or read_usage
        self._now = now
        self._last_time = now()
        self._last: Usage | None = None
        self._seconds = 0.0

    def elapsed(self) -> float:
        """Return the seconds from the start to the last observation. Call this at least every POLL_SECONDS."""
        now = self._now()
        passed = now - self._last_time
        if passed < POLL_SECONDS / 2:  # an observation reads a file for each thread
            return self._seconds
        usage = self._read(self._pids())
        used = 0.0
        # The first call has no earlier observation to compare with.
        if self._last is not None:
            before = self._last.processor_seconds
            used = sum(max(value - before.get(pid, 0.0), 0.0) for pid, value in usage.processor_seconds.items())
        if not usage.runnable:
            # The processes sleep now. Where this process itself was not running, nobody knows since when.
            used = max(used, min(passed, 2 * POLL_SECONDS))
        self._seconds += max(min(used, passed), passed / MAX_STRETCH)
        self._last = usage
        self._last_time = now
        return self._seconds


def read_usage(pids: Iterable[int]) -> Usage:
    """Return the state of processes and their descendants."""
    tree: set[int] = set()
    for pid in pids:
        tree |= {pid, *quota.descendants(pid)}
    processor_seconds: dict[int, float] = {}
    runnable = False
    for pid in tree:
        with contextlib.suppress(OSError):
            # From the end of the command's name in parentheses, proc(5): the state, and the 12th to the 15th value
            # after it are utime, stime, and both of the children that were waited for.
            fields = _read_stat(f"/proc/{pid}/stat")
            processor_seconds[pid] = sum(map(int, fields[11:15])) / _TICKS_PER_SECOND
            # A process's own state is that of its first thread.
            threads = os.listdir(f"/proc/{pid}/task")
            runnable = runnable or any(_read_stat(f"/proc/{pid}/task/{thread}/stat")[0] == "R" for thread in threads)
    return Usage(processor_seconds, runnable)


def _read_stat(path: str) -> list[str]:
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read().rpartition(")")[2].split()
