"""Limit what a forked process and its descendants may use, and count what they have used.

The kernel enforces `limit`. No rlimit counts the files of a folder or the processes of a tree. The fork server counts
these every `LOOK_SECONDS`, which takes no privileges; a submission can exceed them until the next look.
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

# Bytes of host memory that a worker may use with all its processes: at most half of the machine's.
MEMORY = 8 << 30

# Bytes that a file which a worker writes may have. The worker's output is such a file.
#
# nvcc writes 80 MiB of generated code for a GEMM of CUTLASS.
FILE_SIZE = 192 << 20

# Bytes on the disk that a submission's folder may use. Removed files that the submission keeps open are included.
FOLDER_BYTES = 512 << 20

FOLDER_FILES = 10_000

# Processes of a submission. A compiler of torch's starts one for each core.
PROCESSES = 256

DESCRIPTORS = 4096
LOOK_SECONDS = 0.2


class Excess(IntEnum):
    """A quota that a submission exceeded, as an exit status that no process has."""

    BYTES = 1001
    FILES = 1002
    PROCESSES = 1003
    MEMORY = 1004

    @property
    def description(self) -> str:
        """The sentence about the submission, without its subject."""
        return {
            Excess.BYTES: f"wrote more than its quota of {FOLDER_BYTES >> 20} MiB of files",
            Excess.FILES: f"made more files than its quota of {FOLDER_FILES:,}, or hid some",
            Excess.PROCESSES: f"started more processes than its quota of {PROCESSES}",
            Excess.MEMORY: f"used more memory than its quota of {memory_limit() >> 20:,} MiB, in all its processes",
        }[self]


def memory_limit() -> int:
    """Return the bytes of host memory that a process may allocate, and that a worker's processes may hold together."""
    return min(MEMORY, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)


def limit() -> None:
    """Limit this process, so that a submission that uses too much fails, and not the machine.

    A GPU's memory and address space are not limited.
    """
    memory = memory_limit()
    descriptors = min(DESCRIPTORS, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    for resource_id, limit_value in (
        # Since Linux 4.7, RLIMIT_DATA includes private memory from mmap, and not only the heap: getrlimit(2).
        (resource.RLIMIT_DATA, memory),
        # Python ignores SIGXFSZ, so a write beyond the limit raises OSError (EFBIG) and does not end the process.
        (resource.RLIMIT_FSIZE, FILE_SIZE),
        (resource.RLIMIT_NOFILE, descriptors),
        (resource.RLIMIT_CORE, 0),
    ):
        # The hard limit is lowered as well: a process may raise its soft limit up to the hard limit, see getrlimit(2).
        resource.setrlimit(resource_id, (limit_value, limit_value))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(
            "1000", encoding="ascii"
        )  # the first to be killed if memory runs out


def find_excess(pid: int, folder: Path) -> Excess | None:
    """Return what a process with all its descendants used too much of. `folder` is the folder that it may write to."""
    tree = {pid, *descendants(pid)}
    if len(tree) > PROCESSES:
        return Excess.PROCESSES
    if memory_used(tree, memory_limit()) > memory_limit():
        return Excess.MEMORY
    return folder_excess(folder, tree)


def memory_used(pids: Iterable[int], threshold: int) -> int:
    """Return the bytes of memory and swap that these processes hold, or an upper bound of at most `threshold`.

    RLIMIT_DATA counts neither shared memory nor a tree of processes. Pages that several processes share are divided
    among them: proc(5), Pss. Pages that a file on the disk holds as well do not count. The kernel walks all page tables
    to compute Pss, so an upper bound is computed first, in which shared pages count for each process.
    """
    pids = list(pids)
    bound = sum(_kilobytes(f"/proc/{pid}/status", "RssAnon", "RssShmem", "VmSwap") for pid in pids) << 10
    if bound <= threshold:
        return bound
    return (
        sum(
            _kilobytes(f"/proc/{pid}/smaps_rollup", "Pss_Anon", "Pss_Shmem", "SwapPss")
            # smaps_rollup cannot be read where the process is not dumpable, or the kernel is old.
            or _kilobytes(f"/proc/{pid}/status", "RssAnon", "RssShmem", "VmSwap")
            for pid in pids
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


def folder_excess(folder: Path, pids: Iterable[int] = ()) -> Excess | None:
    """Return what a folder has too much of, counting files that these processes have removed and keep open."""
    blocks = 0
    try:
        for index, status in enumerate(itertools.chain(_removed(pids, os.stat(folder).st_dev), _below(folder))):
            blocks += status.st_blocks
            # st_blocks has units of 512 bytes, whatever the size of a block: stat(2). A sparse file counts with the
            # blocks that it takes.
            if blocks * 512 > FOLDER_BYTES:
                return Excess.BYTES
            if index >= FOLDER_FILES:
                return Excess.FILES
    except FileNotFoundError:
        return None
    except OSError:  # a path too long, or a folder that cannot be read: what is below it is not counted
        return Excess.FILES
    return None


def descendants(pid: int) -> set[int]:
    """Return the pids of all descendants of a process."""
    pids: set[int] = set()
    pending = [pid]
    while pending:
        new_pids = children(pending.pop()) - pids
        pids |= new_pids
        pending += new_pids
    return pids


def children(pid: int | str = "self") -> set[int]:
    """Return the pids of a process's children, whether it forked them or inherited them as a subreaper."""
    pids: set[int] = set()
    with contextlib.suppress(OSError):
        # The kernel lists children by the thread that forked them: proc(5).
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                pids.update(map(int, file.read().split()))
    return pids


def kill_trees(pids: Iterable[int]) -> None:
    """Kill these processes with all their descendants.

    All are stopped first, so that none of them forks while its descendants are listed.
    """
    stopped: set[int] = set()
    roots = set(pids)
    # A process may fork before its SIGSTOP arrives, so the descendants are listed until no new one appears.
    while running := roots.union(*map(descendants, roots)) - stopped:
        for pid in running:
            _signal(pid, signal.SIGSTOP)
        stopped |= running
    for pid in stopped:
        _signal(pid, signal.SIGKILL)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _below(folder: Path) -> Iterator[os.stat_result]:
    """Yield the status of all entries below a folder. Entries that disappear meanwhile are skipped."""
    pending = [str(folder)]
    while pending:
        with contextlib.suppress(FileNotFoundError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    yield entry.stat(follow_symlinks=False)
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)


def _removed(pids: Iterable[int], device: int) -> Iterator[os.stat_result]:
    """Yield the status of each file of a device that these processes have open and that has no name any more, once."""
    inodes: set[int] = set()
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for descriptor in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    status = os.stat(f"/proc/{pid}/fd/{descriptor}")
                    unnamed = status.st_nlink == 0 and stat.S_ISREG(status.st_mode) and status.st_dev == device
                    if unnamed and status.st_ino not in inodes:
                        inodes.add(status.st_ino)
                        yield status
