"""Where kernelpath keeps files on this computer, and how it reads the files that learners hand in.

KERNELPATH_CACHE names the folder of submissions that are being graded; without it, the folder is the user's cache
folder for kernelpath. What compilers made is in the cache of warpcheck (`warpcheck.cache`).
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from platformdirs import user_cache_path

import kernelpath
import warpcheck
from warpcheck.cache import write_atomically
from warpcheck.source_text import MOST_BYTES, Unreadable, blank_comments, read_source, source_text

__all__ = [
    "MOST_BYTES",
    "MOST_FILES",
    "Unreadable",
    "blank_comments",
    "cache_root",
    "digest_source",
    "grader_sources",
    "read_source",
    "remove",
    "source_text",
    "submitted",
    "write_atomically",
]

MOST_FILES = 1000
"""Of the project that is handed in with a Python file."""

_MOST_ENTRIES = 20_000
"""Of a project's folders that are looked at."""


def cache_root() -> Path:
    """Return the folder for the working folders of gradings."""
    named = os.environ.get("KERNELPATH_CACHE")
    return Path(named) if named else user_cache_path("kernelpath")


def grader_sources() -> list[Path]:
    """Return the source files on which a verdict depends: those of kernelpath and of warpcheck."""
    folders = [Path(package.__path__[0]) for package in (kernelpath, warpcheck)]
    return [path for folder in folders for path in sorted(folder.rglob("*.py"))]


def digest_source(path: Path, most: int) -> str:
    """Return the SHA-256 of a file that was handed in; of one that cannot be read, of the reason."""
    try:
        content = read_source(path, most)
    except Unreadable as error:
        content = str(error).encode("utf-8", "backslashreplace")
    return hashlib.sha256(content).hexdigest()


def remove(path: Path) -> None:
    """Remove a file, or a folder with all below it, whatever its depth and its permissions; as far as it can be."""
    with contextlib.suppress(OSError):
        if path.is_symlink() or not path.is_dir():
            path.unlink()
            return
    with contextlib.suppress(RecursionError):
        shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        while path.is_dir():
            _lift(path)


def _lift(folder: Path) -> None:
    """Remove the files of a folder, and move what lies in its folders up, so that no path gets long; then itself.

    Raises OSError.
    """
    folder.chmod(0o700)
    entries = list(os.scandir(folder))
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            os.chmod(entry.path, 0o700)
            for below in os.listdir(entry.path):
                os.rename(os.path.join(entry.path, below), folder / secrets.token_hex(8))
            os.rmdir(entry.path)
        else:
            os.unlink(entry.path)
    if not entries:
        folder.rmdir()


_MADE = re.compile(r"__pycache__|build|dist|.*\.egg-info|\..*")
"""Folders that builds and tests leave in a project."""


def submitted(python: Path) -> tuple[Path, ...]:
    """The files that are handed in with a Python file: a .cu of its stem, itself, and those of a folder of its stem.

    Of a folder with more than MOST_FILES files there is one more than that.
    """
    project = python.with_suffix("")
    own = [] if project.is_symlink() else sorted(itertools.islice(_files_below(project), MOST_FILES + 1))
    return *(path for path in (python.with_suffix(".cu"), python) if path.is_file()), *own


def _files_below(project: Path) -> Iterator[Path]:
    """Yield the regular files of a project, but for what builds and tests leave there. No link is followed."""
    folders, looked = [project], 0
    while folders:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                looked += 1
                if looked > _MOST_ENTRIES:
                    return
                if _MADE.fullmatch(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(Path(entry.path))
                elif entry.is_file(follow_symlinks=False):
                    yield Path(entry.path)
