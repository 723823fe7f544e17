"""The folders of one submission: the copy of it that is graded, and what its process may write to."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from kernelpath.files import cache_root, write_atomically

MOST_BYTES = 4 << 20
"""Of a source file that is copied."""

_SOURCES = (".cu", ".cuh", ".h", ".hpp")


@dataclass(frozen=True)
class Workspace:
    """Folders that no other submission has, and that the next grading of the same file finds again.

    What compilers made is kept there, so it serves this submission alone.
    """

    submission: Path

    @property
    def _root(self) -> Path:
        return cache_root() / "submissions" / hashlib.sha256(bytes(self.submission)).hexdigest()[:24]

    @property
    def source(self) -> Path:
        return self._root / "source"

    @property
    def own(self) -> Path:
        return self._root / "own"

    def copy(self, alone: bool) -> Path:
        """Copy the submission as it is now; returns the copy.

        alone: without the other CUDA C++ sources that lie beside it.
        """
        files = {self.submission, self.submission.with_suffix(".cu")}
        if not alone:
            files |= {file for file in self.submission.parent.iterdir() if file.suffix in _SOURCES}
        wanted = {file.name: file for file in files if file.is_file() and file.stat().st_size <= MOST_BYTES}
        self.source.mkdir(parents=True, exist_ok=True)
        for stale in self.source.iterdir():
            if stale.name not in wanted:
                shutil.rmtree(stale) if stale.is_dir() else stale.unlink()
        for name, file in wanted.items():
            content, copy = file.read_bytes(), self.source / name
            if not copy.is_file() or copy.read_bytes() != content:
                write_atomically(copy, content)
        return self.source / self.submission.name

    def clean(self) -> None:
        """Remove what the submission wrote, but for compilers' output."""
        shutil.rmtree(self.own / "tmp", ignore_errors=True)
