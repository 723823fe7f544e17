"""The folders of one submission: the copy of it that is graded, and what its process may write to."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernelpath import files
from kernelpath.files import cache_root, write_atomically
from kernelpath.work import quota

MOST_BYTES = 4 << 20
"""Of a source file that is copied."""

KEPT = 200
"""Submissions whose compilers' output is kept; there are fewer exercises."""

_SOURCES = (".cu", ".cuh", ".h", ".hpp")


@dataclass(frozen=True)
class Copied:
    """A copy that is graded: its path, and the SHA-256 of each file by its name. unusable: why it could not be made."""

    file: Path
    digests: Mapping[str, str]
    unusable: str = ""


@dataclass(frozen=True)
class Workspace:
    """Folders that no other submission has, and that the next grading of the same file finds again.

    What compilers made is kept there, so it serves this submission alone.
    """

    submission: Path

    @property
    def _root(self) -> Path:
        return _all() / hashlib.sha256(bytes(self.submission)).hexdigest()[:24]

    @property
    def source(self) -> Path:
        return self._root / "source"

    @property
    def own(self) -> Path:
        return self._root / "own"

    def copy(self, alone: bool) -> Copied:
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
        return Copied(copy, digests, unusable)

    def clean(self, keep: bool = True) -> None:
        """Remove what the submission wrote, but for compilers' output; that too, if it is over its quota.

        keep: whether another grading of the same file is to be expected.
        """
        if not keep:
            files.remove(self._root)
            return
        files.remove(self.own if quota.taken(self.own) else self.own / "tmp")
        with contextlib.suppress(OSError):
            os.utime(self._root)
            for old in sorted(_all().iterdir(), key=lambda folder: folder.stat().st_mtime)[:-KEPT]:
                files.remove(old)


def contents(submission: Path, alone: bool = False) -> dict[str, bytes]:
    """What is graded: its own files and the CUDA C++ sources beside it, by their paths from its folder.

    alone: without those beside it. Raises files.Unreadable for one of its own.
    """
    kernel = submission.with_suffix(".cu")
    own = {submission, *([kernel] if kernel.exists() else []), *files.submitted(submission)}
    found = {str(file.relative_to(submission.parent)): files.read_source(file, MOST_BYTES) for file in sorted(own)}
    for file in () if alone else sources_beside(submission):
        with contextlib.suppress(files.Unreadable):
            found.setdefault(file.name, files.read_source(file, MOST_BYTES))
    return found


def sources_beside(submission: Path) -> list[Path]:
    """The CUDA C++ sources in its folder, its own kernel included. No other is a link: it may lead to a classmate's."""
    kernel = submission.with_suffix(".cu")
    found = sorted(file for file in submission.parent.iterdir() if file.suffix in _SOURCES)
    return [file for file in found if file == kernel or not file.is_symlink()]


def _all() -> Path:
    return cache_root() / "submissions"
