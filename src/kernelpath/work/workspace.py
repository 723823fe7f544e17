"""Manage the folders of one grading: the copy of the submission that is graded, and the folders its process may write
to.

Gradings of one file may run at the same time, as `kp watch` and `kp check` do. Each of them reserves folders of its own
by a lock: the first grading slot 0 of the file, a second grading that begins meanwhile slot 1. The kernel releases the
lock of a grader that is killed. The next grading takes over a slot with the compilers' output in it. The path of a slot
stays the same, because compilers write the path of a source into their output, and so into the keys of their caches.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import itertools
import os
import secrets
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from kernelpath import files
from kernelpath.files import cache_root, write_atomically
from kernelpath.work import quota

# The size of a source file that is copied, at most.
MOST_BYTES = files.MOST_BYTES

# The size of all files that are copied with a submission, at most.
MOST_BYTES_TOGETHER = 16 << 20

# The entries of a submission's folder that are searched for sources, at most.
_MOST_ENTRIES = 10_000

# The slots whose compilers' output is kept. There are fewer exercises.
KEPT = 200

# The slots of one submission that are kept: one for `kp watch`, and one for a grading at the same time.
KEPT_SLOTS = 2

# The prefix of the name of a folder that is being removed, or was being removed when its grader was killed.
_REMOVED = "removed-"

# The errors of a file system without locks.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)

# The prefix of the name of a folder of a rank's process, for the ranks after the first.
_OF_A_RANK = "own-of-rank-"

_SOURCES = (".cu", ".cuh", ".h", ".hpp")


@dataclass(frozen=True)
class SubmissionCopy:
    """A copy that is graded.

    Attributes:
        file: The path of the copy.
        digests: The SHA-256 of each file by its name.
        unusable: Why no copy could be made; empty where it could.
    """

    file: Path
    digests: Mapping[str, str]
    unusable: str = ""


class _Lock:
    """An exclusive lock on a folder. This object holds it, not its process, and it ends with the object at the
    latest.
    """

    def __init__(self, descriptor: int) -> None:
        self.release = weakref.finalize(self, os.close, descriptor)

    @classmethod
    def acquire(cls, folder: Path) -> _Lock | None:
        """Create the folder where there is none, and lock it. Return None where it is locked already. Raises
        OSError.
        """
        path = folder / "lock"
        while True:
            folder.mkdir(parents=True, exist_ok=True)
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            except FileNotFoundError:  # the folder was removed in between
                continue
            try:
                # flock and not lockf: the lock belongs to the open file, so closing another descriptor of the file does
                # not release it.
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Between open and flock another grading may have removed the folder, so the lock has to be on the file
                # that is there now.
                if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                    return cls(descriptor)
            except BlockingIOError:
                os.close(descriptor)
                return None
            except FileNotFoundError:
                pass
            except OSError:
                os.close(descriptor)
                raise
            os.close(descriptor)  # of a file that was removed with its folder in between: it locks nothing


@dataclass(frozen=True)
class Workspace:
    """Folders that no other submission has, and that a later grading of the same file finds again.

    Compilers' output is kept there, so it serves this submission alone.

    Attributes:
        submission: The submission's file.
        slot: The number of this grading among the gradings of the file that run at the same time.
        rank: The number of a rank, which has a folder that the other ranks can neither read nor write.
        lock: Keeps other gradings out; None where only the paths are needed.
    """

    submission: Path
    slot: int = 0
    rank: int = 0
    lock: _Lock | None = field(default=None, compare=False, repr=False)

    @classmethod
    def reserve(cls, submission: Path) -> Workspace:
        """Return the first slot that no other grading has reserved. `clean` ends the reservation. Raises OSError."""
        for slot in itertools.count():
            workspace = cls(submission, slot)
            try:
                lock = _Lock.acquire(workspace._root)
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
                return cls(submission, KEPT_SLOTS + secrets.randbits(48))  # nobody else's, and removed at the end
            if lock is not None:
                files.remove(workspace.own / "tmp")  # what a grader left that was killed
                return replace(workspace, lock=lock)
        raise AssertionError

    @property
    def _root(self) -> Path:
        digest = hashlib.sha256(bytes(self.submission)).hexdigest()[:24]
        name = f"{digest}-{self.slot}" if self.slot else digest
        return _submissions_folder() / name

    @property
    def source(self) -> Path:
        return self._root / "source"

    @property
    def own(self) -> Path:
        return self._root / (f"{_OF_A_RANK}{self.rank}" if self.rank else "own")

    def of_rank(self, rank: int) -> Workspace:
        """Return the same folders, except for the folder that the process of a rank may write to."""
        return replace(self, rank=rank, lock=None) if rank else self

    def copy(self, alone: bool) -> SubmissionCopy:
        """Copy the submission as it is now.

        `alone` leaves out the other CUDA C++ sources beside it.
        """
        copy = self.source / self.submission.name
        content_by_name: dict[str, bytes] = {}
        unusable = ""
        try:
            content_by_name = contents(self.submission, alone)
        except files.Unreadable as error:
            unusable = str(error)
        self.source.mkdir(parents=True, exist_ok=True)
        folders = {str(folder) for name in content_by_name for folder in Path(name).parents}
        for stale in sorted(self.source.rglob("*"), reverse=True):  # what is in a folder comes before the folder
            if str(stale.relative_to(self.source)) not in {*content_by_name, *folders}:
                files.remove(stale)
        for name, content in content_by_name.items():
            target = self.source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            # An unchanged file keeps its time of modification, on which compilers' caches depend.
            if not target.is_file() or target.read_bytes() != content:
                write_atomically(target, content)
        digests = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(content_by_name.items())}
        return SubmissionCopy(copy, digests, unusable)

    def clean(self, keep: bool = True) -> None:
        """Remove what the submission wrote, except for compilers' output, and end the reservation.

        Compilers' output is removed as well where it is over its quota. `keep` says whether another grading of the same
        file is to be expected.
        """
        try:
            if not keep or self.slot >= KEPT_SLOTS:
                _remove(self._root)
                return
            files.remove(self.own if quota.folder_excess(self.own) else self.own / "tmp")
            for folder in self._root.glob(f"{_OF_A_RANK}*"):
                files.remove(folder)
            with contextlib.suppress(OSError):
                # `_remove_oldest` keeps the slots that were used last.
                os.utime(self._root)
                _remove_oldest()
        finally:
            if self.lock is not None:
                self.lock.release()


def _remove_oldest() -> None:
    """Remove all but the last KEPT slots, and none that a grading has reserved. Raises OSError."""
    slots = []
    for folder in _submissions_folder().iterdir():
        if folder.name.startswith(_REMOVED):
            files.remove(folder)
        else:
            slots.append((folder.stat().st_mtime, folder))
    for _, folder in sorted(slots)[:-KEPT]:
        lock = _Lock.acquire(folder)
        if lock is not None:
            _remove(folder)
            lock.release()


def _remove(folder: Path) -> None:
    """Remove a slot whose lock is held. The folder is renamed first, so that nobody can find and lock a part of it."""
    removed = folder.with_name(_REMOVED + secrets.token_hex(8))
    with contextlib.suppress(OSError):
        folder.rename(removed)
        folder = removed
    files.remove(folder)


def contents(submission: Path, alone: bool = False) -> dict[str, bytes]:
    """Return the files that are graded: its own files and the CUDA C++ sources beside it, by their paths from its
    folder.

    `alone` leaves out the sources beside it.

    Raises:
        files.Unreadable: One of its own files cannot be read, or there is more than can be graded.
    """
    kernel = submission.with_suffix(".cu")
    own = sorted({submission, *([kernel] if kernel.exists() else []), *files.submitted(submission)})
    content_by_name: dict[str, bytes] = {}
    if len(own) > files.MOST_FILES:
        raise files.Unreadable(f"{submission.stem} has more than {files.MOST_FILES:,} files")
    for file in [*own, *(() if alone else sources_beside(submission))]:
        name = str(file.relative_to(submission.parent))
        if name in content_by_name:
            continue
        try:
            content_by_name[name] = files.read_source(file, MOST_BYTES)
        except files.Unreadable:
            if file in own:
                raise
        if sum(map(len, content_by_name.values())) > MOST_BYTES_TOGETHER:
            most = f"{MOST_BYTES_TOGETHER >> 20} MiB"
            raise files.Unreadable(f"{submission.name} and the files next to it have more than {most}")
    return content_by_name


def sources_beside(submission: Path) -> list[Path]:
    """Return the CUDA C++ sources in its folder, its own kernel included.

    Links are left out, except for its own kernel: a link may lead to a classmate's file.
    """
    kernel = submission.with_suffix(".cu")
    # A folder with millions of entries must not take the grader's time.
    entries = itertools.islice(submission.parent.iterdir(), _MOST_ENTRIES)
    sources = sorted(file for file in entries if file.suffix in _SOURCES)
    return [file for file in sources if file == kernel or not file.is_symlink()]


def _submissions_folder() -> Path:
    return cache_root() / "submissions"
