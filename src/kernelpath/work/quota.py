"""What a forked process and all that it starts may take, and what it has taken.

The kernel holds `limit`. What no rlimit counts, files in a folder and processes of a tree, the fork server counts every
`LOOK_SECONDS`, which takes no privileges; a submission can take more until the next look.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import signal
import stat
from collections.abc import Iterable, Iterator
from enum import IntEnum
from pathlib import Path

MEMORY = 8 << 30
"""Bytes of host memory that a worker may use, with all processes that it starts, and never more than half of all there
is."""

FILE_SIZE = 64 << 20
"""Bytes that a file which a worker writes may have, what it prints included."""

FOLDER_BYTES = 512 << 20
"""Bytes on the disk that a submission's folder may take, files that it has removed and keeps open included."""

FOLDER_FILES = 10_000
PROCESSES = 256
"""A compiler of torch's starts one for each core."""

DESCRIPTORS = 4096
LOOK_SECONDS = 0.2


class Excess(IntEnum):
    """What a submission took too much of, as an exit status that no process has."""

    BYTES = 1001
    FILES = 1002
    PROCESSES = 1003
    MEMORY = 1004

    @property
    def told(self) -> str:
        return {
            Excess.BYTES: f"wrote more than its quota of {FOLDER_BYTES >> 20} MiB of files",
            Excess.FILES: f"made more files than its quota of {FOLDER_FILES:,}, or hid some",
            Excess.PROCESSES: f"started more processes than its quota of {PROCESSES}",
            Excess.MEMORY: f"used more memory than its quota of {memory_limit() >> 20:,} MiB, in all its processes",
        }[self]


def memory_limit() -> int:
    """Return the bytes of host memory that one process may allocate, and that all below a worker may hold together."""
    return min(MEMORY, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)


def limit() -> None:
    """Let a submission that takes too much fail, and not the machine. A GPU's memory and address space do not count."""
    memory = memory_limit()
    descriptors = min(DESCRIPTORS, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    for what, most in (
        (resource.RLIMIT_DATA, memory),
        (resource.RLIMIT_FSIZE, FILE_SIZE),
        (resource.RLIMIT_NOFILE, descriptors),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (most, most))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")  # the first to go if memory runs out


def find_excess(process: int, folder: Path) -> Excess | None:
    """Whether a process, with all that it has started, has taken too much. folder: where it may write."""
    tree = {process, *descendants(process)}
    if len(tree) > PROCESSES:
        return Excess.PROCESSES
    if memory_used(tree, memory_limit()) > memory_limit():
        return Excess.MEMORY
    return folder_excess(folder, tree)


def memory_used(processes: Iterable[int], most: int) -> int:
    """Return the bytes of memory and swap that these processes hold, at least where that is more than `most`.

    RLIMIT_DATA counts neither shared memory nor a tree of processes. Pages that several processes share count once, in
    parts: proc(5), Pss. What a file on the disk holds as well does not count. Adding up Pss walks all page tables, so
    that a bound is looked at first, in which shared pages count again for each process.
    """
    processes = list(processes)
    bound = sum(_kilobytes(f"/proc/{process}/status", "RssAnon", "RssShmem", "VmSwap") for process in processes) << 10
    if bound <= most:
        return bound
    return (
        sum(
            _kilobytes(f"/proc/{process}/smaps_rollup", "Pss_Anon", "Pss_Shmem", "SwapPss")
            or _kilobytes(f"/proc/{process}/status", "RssAnon", "RssShmem", "VmSwap")  # it hides, or the kernel is old
            for process in processes
        )
        << 10
    )


def _kilobytes(path: str, *names: str) -> int:
    """Return the sum of the values of these names in a file of /proc; 0 where it cannot be read."""
    values = 0
    with contextlib.suppress(OSError), open(path, encoding="ascii", errors="replace") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name in names:
                values += int(value.split()[0])
    return values


def folder_excess(folder: Path, processes: Iterable[int] = ()) -> Excess | None:
    """Whether a folder, with what these processes have removed and keep open, is too large."""
    blocks = 0
    try:
        for number, status in enumerate(itertools.chain(_removed(processes, os.stat(folder).st_dev), _below(folder))):
            blocks += status.st_blocks
            if blocks * 512 > FOLDER_BYTES:
                return Excess.BYTES
            if number >= FOLDER_FILES:
                return Excess.FILES
    except FileNotFoundError:
        return None
    except OSError:  # a path too long, or a folder that cannot be read: what is below it is not counted
        return Excess.FILES
    return None


def descendants(process: int) -> set[int]:
    """All processes below this one."""
    found: set[int] = set()
    left = [process]
    while left:
        below = children(left.pop()) - found
        found |= below
        left += below
    return found


def children(process: int | str = "self") -> set[int]:
    """A process's children, whether it forked them or inherited them."""
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{process}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{process}/task/{task}/children", encoding="ascii") as file:
                found.update(map(int, file.read().split()))
    return found


def kill_trees(trees: Iterable[int]) -> None:
    """Kill these processes with all below them. First all are stopped, so that none forks while others are found."""
    stopped: set[int] = set()
    roots = set(trees)
    while found := roots.union(*map(descendants, roots)) - stopped:
        for process in found:
            _signal(process, signal.SIGSTOP)
        stopped |= found
    for process in stopped:
        _signal(process, signal.SIGKILL)


def _signal(process: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process, number)


def _below(folder: Path) -> Iterator[os.stat_result]:
    """All in a folder; what goes away meanwhile is passed over."""
    left = [str(folder)]
    while left:
        with contextlib.suppress(FileNotFoundError), os.scandir(left.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    yield entry.stat(follow_symlinks=False)
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)


def _removed(processes: Iterable[int], disk: int) -> Iterator[os.stat_result]:
    """The files on a disk that these processes have open and that have no name any more, each once."""
    seen: set[int] = set()
    for process in processes:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for descriptor in os.listdir(f"/proc/{process}/fd"):
                with contextlib.suppress(OSError):
                    status = os.stat(f"/proc/{process}/fd/{descriptor}")
                    unnamed = status.st_nlink == 0 and stat.S_ISREG(status.st_mode) and status.st_dev == disk
                    if unnamed and status.st_ino not in seen:
                        seen.add(status.st_ino)
                        yield status
