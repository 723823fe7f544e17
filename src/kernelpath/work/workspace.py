"""The folders of one grading: the copy of the submission that is graded, and what its process may write to.

Gradings of one file may run at the same time, as `kp watch` beside `kp check`. Each of them reserves folders of its own
by a lock: the first one slot 0 of the file, a second one that begins meanwhile slot 1. The kernel releases the lock of
a grader that is killed. A slot is handed over from one grading to the next with what compilers made in it; its path
stays the same, because compilers write the path of a source into what they make, and so into the keys of their caches.
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

MOST_BYTES = files.MOST_BYTES
"""Of a source file that is copied."""

MOST_BYTES_TOGETHER = 16 << 20
"""Of all files that are copied with a submission."""

_MOST_ENTRIES = 10_000
"""Of a submission's folder that are looked at for sources."""

KEPT = 200
"""Slots whose compilers' output is kept; there are fewer exercises."""

KEPT_SLOTS = 2
"""Of one submission: one for `kp watch`, and one for what is graded beside it."""

_REMOVED = "removed-"
"""How the name of a folder begins that is being removed, or was when its grader was killed."""

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""Errors of a file system without locks."""

_OF_A_RANK = "own-of-rank-"
"""How the name of a folder begins that the process of a rank after the first has."""

_SOURCES = (".cu", ".cuh", ".h", ".hpp")


@dataclass(frozen=True)
class SubmissionCopy:
    """A copy that is graded: its path, and the SHA-256 of each file by its name. unusable: why it could not be made."""

    file: Path
    digests: Mapping[str, str]
    unusable: str = ""


class _Lock:
    """An exclusive lock on a folder: of this object, not of its process. It ends with the object at the latest."""

    def __init__(self, descriptor: int) -> None:
        self.release = weakref.finalize(self, os.close, descriptor)

    @classmethod
    def acquire(cls, folder: Path) -> _Lock | None:
        """Make the folder where there is none, and lock it. None where it is locked already. Raises OSError."""
        path = folder / "lock"
        while True:
            folder.mkdir(parents=True, exist_ok=True)
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            except FileNotFoundError:  # the folder was removed in between
                continue
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
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

    What compilers made is kept there, so it serves this submission alone. slot: counts the gradings of one file that
    run at the same time. lock: what keeps the others out; None where only the paths are of interest. rank: of several,
    each of which has a folder that the others can neither read nor write.
    """

    submission: Path
    slot: int = 0
    rank: int = 0
    lock: _Lock | None = field(default=None, compare=False, repr=False)

    @classmethod
    def reserve(cls, submission: Path) -> Workspace:
        """The first slot that no other grading has, until `clean`. Raises OSError."""
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
        return _all() / (f"{digest}-{self.slot}" if self.slot else digest)

    @property
    def source(self) -> Path:
        return self._root / "source"

    @property
    def own(self) -> Path:
        return self._root / (f"{_OF_A_RANK}{self.rank}" if self.rank else "own")

    def of_rank(self, rank: int) -> Workspace:
        """The same folders, but for what the process of a rank may write to."""
        return replace(self, rank=rank, lock=None) if rank else self

    def copy(self, alone: bool) -> SubmissionCopy:
        """Copy the submission as it is now.

        alone: without the other CUDA C++ sources that lie beside it.
        """
        copy = self.source / self.submission.name
        wanted, unusable = dict[str, bytes](), ""
        try:
            wanted = contents(self.submission, alone)
        except files.Unreadable as error:
            unusable = str(error)
        self.source.mkdir(parents=True, exist_ok=True)
        folders = {str(folder) for name in wanted for folder in Path(name).parents}
        for stale in sorted(self.source.rglob("*"), reverse=True):
            if str(stale.relative_to(self.source)) not in {*wanted, *folders}:
                files.remove(stale)
        for name, content in wanted.items():
            known = self.source / name
            known.parent.mkdir(parents=True, exist_ok=True)
            if not known.is_file() or known.read_bytes() != content:
                write_atomically(known, content)
        digests = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(wanted.items())}
        return SubmissionCopy(copy, digests, unusable)

    def clean(self, keep: bool = True) -> None:
        """Remove what the submission wrote, but for compilers' output; that too, if it is over its quota. Ends the
        reservation.

        keep: whether another grading of the same file is to be expected.
        """
        try:
            if not keep or self.slot >= KEPT_SLOTS:
                _remove(self._root)
                return
            files.remove(self.own if quota.folder_excess(self.own) else self.own / "tmp")
            for folder in self._root.glob(f"{_OF_A_RANK}*"):
                files.remove(folder)
            with contextlib.suppress(OSError):
                os.utime(self._root)
                _remove_oldest()
        finally:
            if self.lock is not None:
                self.lock.release()


def _remove_oldest() -> None:
    """Remove all but the last KEPT slots, and none that a grading has. Raises OSError."""
    slots = []
    for folder in _all().iterdir():
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
    """Remove a slot whose lock is held, at once for everybody else: nobody finds, and locks, a part of it."""
    removed = folder.with_name(_REMOVED + secrets.token_hex(8))
    with contextlib.suppress(OSError):
        folder.rename(removed)
        folder = removed
    files.remove(folder)


def contents(submission: Path, alone: bool = False) -> dict[str, bytes]:
    """What is graded: its own files and the CUDA C++ sources beside it, by their paths from its folder.

    alone: without those beside it. Raises files.Unreadable for one of its own, and for more than can be graded.
    """
    kernel = submission.with_suffix(".cu")
    own = sorted({submission, *([kernel] if kernel.exists() else []), *files.submitted(submission)})
    found: dict[str, bytes] = {}
    if len(own) > files.MOST_FILES:
        raise files.Unreadable(f"{submission.stem} has more than {files.MOST_FILES:,} files")
    for file in [*own, *(() if alone else sources_beside(submission))]:
        name = str(file.relative_to(submission.parent))
        if name in found:
            continue
        try:
            found[name] = files.read_source(file, MOST_BYTES)
        except files.Unreadable:
            if file in own:
                raise
        if sum(map(len, found.values())) > MOST_BYTES_TOGETHER:
            most = f"{MOST_BYTES_TOGETHER >> 20} MiB"
            raise files.Unreadable(f"{submission.name} and what lies beside it have more than {most}")
    return found


def sources_beside(submission: Path) -> list[Path]:
    """The CUDA C++ sources in its folder, its own kernel included. No other is a link: it may lead to a classmate's."""
    kernel = submission.with_suffix(".cu")
    beside = itertools.islice(submission.parent.iterdir(), _MOST_ENTRIES)
    found = sorted(file for file in beside if file.suffix in _SOURCES)
    return [file for file in found if file == kernel or not file.is_symlink()]


def _all() -> Path:
    return cache_root() / "submissions"
