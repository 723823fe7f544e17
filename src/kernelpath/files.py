"""Locate the files that kernelpath keeps on this computer, and read the files that learners hand in.

KERNELPATH_CACHE names the folder of submissions that are being graded; without it, the folder is the user's cache
folder for kernelpath. The output of compilers is in the cache of warpcheck (`warpcheck.cache`).
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

# The files of the project that is handed in with a Python file, at most.
MOST_FILES = 1000

# The entries of a project's folders that are examined, at most.
_MOST_ENTRIES = 20_000


def cache_root() -> Path:
    """Return the folder for the working folders of gradings."""
    named = os.environ.get("KERNELPATH_CACHE")
    return Path(named) if named else user_cache_path("kernelpath")


def grader_sources() -> list[Path]:
    """Return the source files on which a verdict depends: those of kernelpath and of warpcheck."""
    folders = [Path(package.__path__[0]) for package in (kernelpath, warpcheck)]
    return [path for folder in folders for path in sorted(folder.rglob("*.py"))]


def digest_source(path: Path, max_bytes: int) -> str:
    """Return the SHA-256 of a file that was handed in, or of the reason why it cannot be read."""
    try:
        content = read_source(path, max_bytes)
    except Unreadable as error:
        content = str(error).encode("utf-8", "backslashreplace")
    return hashlib.sha256(content).hexdigest()


def remove(path: Path) -> None:
    """Remove a file, or a folder with everything in it, whatever its depth and its permissions, as far as possible."""
    with contextlib.suppress(OSError):
        # A link is removed itself. Following it would remove what it leads to, such as a learner's other files.
        if path.is_symlink() or not path.is_dir():
            path.unlink()
            return
    with contextlib.suppress(RecursionError):
        # rmtree recurses, so a tree of a submission that is deep enough ends it; the loop below does not.
        shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        while path.is_dir():
            _flatten_folder(path)


def _flatten_folder(folder: Path) -> None:
    """Remove the files of a folder and move the contents of its folders up, so that no path gets long; then remove the
    folder.

    Raises OSError.
    """
    # A submission may have taken its own folder's permissions away.
    folder.chmod(0o700)
    entries = list(os.scandir(folder))
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            os.chmod(entry.path, 0o700)
            for name in os.listdir(entry.path):
                os.rename(os.path.join(entry.path, name), folder / secrets.token_hex(8))
            os.rmdir(entry.path)
        else:
            os.unlink(entry.path)
    if not entries:
        folder.rmdir()


# Matches folders that builds and tests leave in a project.
_GENERATED = re.compile(r"__pycache__|build|dist|.*\.egg-info|\..*")


def submitted(python: Path) -> tuple[Path, ...]:
    """Return the files that are handed in with a Python file: its .cu file, itself, and those of a folder with its
    stem.

    Of a folder with more than MOST_FILES files, one more than that is returned.
    """
    project = python.with_suffix("")
    project_files = [] if project.is_symlink() else sorted(itertools.islice(_files_below(project), MOST_FILES + 1))
    return *(path for path in (python.with_suffix(".cu"), python) if path.is_file()), *project_files


def source_named(python: Path, name: str) -> Path:
    """Return the file called `name` among the files that are handed in with a Python file, or else beside it."""
    return next((file for file in submitted(python) if file.name == name), python.with_name(name))


def _files_below(project: Path) -> Iterator[Path]:
    """Yield the regular files of a project, except for what builds and tests generate there. No link is followed."""
    folders = [project]
    examined = 0
    while folders:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                examined += 1
                if examined > _MOST_ENTRIES:
                    return
                if _GENERATED.fullmatch(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(Path(entry.path))
                elif entry.is_file(follow_symlinks=False):
                    yield Path(entry.path)
