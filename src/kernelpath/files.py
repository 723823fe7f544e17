"""Where kernelpath keeps files on this computer, and how it writes them.

KERNELPATH_CACHE names the folder of the cache, else the user's own is it. A submission's process uses a folder of its
own (`use_root`): what it leaves there is never what another one reads. Nothing read from a cache is to be believed
before it is checked.
"""

from __future__ import annotations

import codecs
import contextlib
import hashlib
import itertools
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from platformdirs import user_cache_path

__all__ = [
    "MOST_BYTES",
    "MOST_FILES",
    "Unreadable",
    "blank_comments",
    "cache_read",
    "cache_root",
    "cache_write",
    "digest_source",
    "read_source",
    "remove",
    "source_text",
    "submitted",
    "use_root",
    "write_atomically",
]

MOST_BYTES = 4 << 20
"""Of a source file that is handed in."""

MOST_FILES = 1000
"""Of the project that is handed in with a Python file."""

_MOST_ENTRIES = 20_000
"""Of a project's folders that are looked at."""

_root: Path | None = None


def use_root(folder: Path) -> None:
    """Let the cache of this process be in `folder`, whatever the environment says."""
    global _root
    _root = folder


def cache_root() -> Path:
    """The folder of the cache."""
    if _root is not None:
        return _root
    named = os.environ.get("KERNELPATH_CACHE")
    return Path(named) if named else user_cache_path("kernelpath")


def cache_read(kind: str, key: str) -> bytes | None:
    """What was kept as `key` among things of one `kind`; None where nothing was, or it cannot be read."""
    with contextlib.suppress(OSError):
        return _place(kind, key).read_bytes()
    return None


def cache_write(kind: str, key: str, data: bytes) -> None:
    """Keep `data`. A folder that cannot be written is not an error: it only costs time."""
    place = _place(kind, key)
    with contextlib.suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(place, data)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file so that whoever reads it, at any moment, finds the old or the new content whole.

    Raises OSError, with `path` as its file name.
    """
    # Not a longer form of the name of `path`, which may have as many letters as a file system admits.
    beside = path.with_name(f"{secrets.token_hex(8)}.tmp")
    try:
        with beside.open("xb") as file:  # not by tempfile, whose files nobody else may read: a page is to be shown
            file.write(content.encode() if isinstance(content, str) else content)
        os.replace(beside, path)
    except BaseException as error:
        with contextlib.suppress(OSError):  # Ctrl-C may come when it has already been renamed
            beside.unlink()
        if isinstance(error, OSError):
            error.filename = str(path)
        raise


class Unreadable(Exception):
    """A file that was handed in cannot be graded. The message says why."""


def read_source(path: Path, most: int) -> bytes:
    """The content of a regular file of at most so many bytes. Raises Unreadable; a pipe does not block it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise Unreadable(f"{path.name} is not a regular file")
            content = file.read(most + 1)
    except IsADirectoryError:
        raise Unreadable(f"{path.name} is a folder") from None
    except OSError as error:
        raise Unreadable(f"{path.name} cannot be read: {error.strerror}") from error
    if len(content) > most:
        raise Unreadable(f"{path.name} has {max(status.st_size, len(content)):,} bytes; at most {most:,} are graded")
    return content


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


def _place(kind: str, key: str) -> Path:
    """Keys are hexadecimal digests: nothing in them leads out of the folder."""
    if not (kind.isidentifier() and key.isalnum()):
        raise ValueError(f"{kind!r}, {key!r} is not the name of something in the cache")
    return cache_root() / kind / key[:2] / key


def blank_comments(source: str) -> str:
    """Return C++ source with its comments as blanks. Lines keep their numbers, and the time is linear in its length."""
    code, place = [], 0
    for comment in _COMMENT.finditer(source):
        if comment.start() < place:  # inside the comment before it
            continue
        code.append(source[place : comment.start()])
        line_end = comment[0] == "//"
        end = source.find("\n" if line_end else "*/", comment.end())
        place = len(source) if end < 0 else end + (0 if line_end else 2)
        code.append(_NO_NEWLINE.sub(" ", source[comment.start() : place]))
    code.append(source[place:])
    return "".join(code)


def source_text(path: Path) -> str:
    """The text of a learner's file: UTF-8, with a mark of byte order or without one; UTF-16 with one; else Latin-1,
    in which every byte is a letter, as an editor on Windows may have left it.

    Of a file that is too large to be graded, or no regular file, the text is empty. Raises OSError.
    """
    try:
        content = read_source(path, MOST_BYTES)
    except Unreadable as error:
        if isinstance(error.__cause__, OSError):
            raise error.__cause__ from None
        return ""
    marked = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    for encoding in ("utf-16",) if marked else ("utf-8-sig", "latin-1"):
        with contextlib.suppress(UnicodeDecodeError):
            return content.decode(encoding).replace("\r\n", "\n").replace("\r", "\n")
    return content.decode("utf-8", errors="replace")


_COMMENT = re.compile(r"//|/\*")
_NO_NEWLINE = re.compile(r"[^\n]")
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
