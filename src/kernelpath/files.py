"""Locate kernelpath's files on this computer, and read and write files safely.

KERNELPATH_CACHE names the folder of the cache; by default it is the user's own. A submission's process uses a folder of
its own (`use_root`): no other process reads what it leaves there. Contents of a cache must be checked before they are
used.
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
"""The size of a source file that is handed in, at most."""

MOST_FILES = 1000
"""The files of the project that is handed in with a Python file, at most."""

_MOST_ENTRIES = 20_000
"""The entries of a project's folders that are examined, at most."""

_root: Path | None = None


def use_root(folder: Path) -> None:
    """Put the cache of this process in `folder`, whatever the environment says."""
    global _root
    _root = folder


def cache_root() -> Path:
    """Return the folder of the cache."""
    if _root is not None:
        return _root
    configured = os.environ.get("KERNELPATH_CACHE")
    return Path(configured) if configured else user_cache_path("kernelpath")


def cache_read(kind: str, key: str) -> bytes | None:
    """Return the data with this kind and key; None where there is none, or it cannot be read."""
    with contextlib.suppress(OSError):
        return _cache_path(kind, key).read_bytes()
    return None


def cache_write(kind: str, key: str, data: bytes) -> None:
    """Store data in the cache. A folder that cannot be written is not an error: it only costs time."""
    path = _cache_path(kind, key)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file so that a reader finds either the old or the new content, at any moment.

    Raises OSError, with `path` as its file name.
    """
    # The temporary name is short: the name of `path` may be as long as the file system allows.
    temporary = path.with_name(f"{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open(
            "xb"
        ) as file:  # tempfile would make it unreadable for others, and it may be a page to publish
            file.write(content.encode() if isinstance(content, str) else content)
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):  # after Ctrl-C it may already have been renamed
            temporary.unlink()
        if isinstance(error, OSError):
            error.filename = str(path)
        raise


class Unreadable(Exception):
    """A file that was handed in cannot be graded. The message says why."""


def read_source(path: Path, max_bytes: int) -> bytes:
    """Return the content of a regular file of at most `max_bytes`. Raise Unreadable otherwise.

    A pipe does not block it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise Unreadable(f"{path.name} is not a regular file")
            content = file.read(max_bytes + 1)
    except IsADirectoryError:
        raise Unreadable(f"{path.name} is a folder") from None
    except OSError as error:
        raise Unreadable(f"{path.name} cannot be read: {error.strerror}") from error
    if len(content) > max_bytes:
        raise Unreadable(
            f"{path.name} has {max(status.st_size, len(content)):,} bytes; at most {max_bytes:,} are graded"
        )
    return content


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
        if path.is_symlink() or not path.is_dir():
            path.unlink()
            return
    with contextlib.suppress(RecursionError):
        shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        while path.is_dir():
            _flatten_folder(path)


def _flatten_folder(folder: Path) -> None:
    """Remove the files of a folder and move the contents of its folders up, so that no path gets long; then remove the
    folder.

    Raises OSError.
    """
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


def _cache_path(kind: str, key: str) -> Path:
    """Return the path of an entry. Keys are hexadecimal digests, so nothing in them leads out of the folder."""
    if not (kind.isidentifier() and key.isalnum()):
        raise ValueError(f"{kind!r}, {key!r} is not the name of something in the cache")
    return cache_root() / kind / key[:2] / key


def blank_comments(source: str) -> str:
    """Return C++ source with its comments replaced by blanks.

    Lines keep their numbers. The time is linear in the length of the source.
    """
    code: list[str] = []
    position = 0
    for comment in _COMMENT.finditer(source):
        if comment.start() < position:  # inside the comment before it
            continue
        code.append(source[position : comment.start()])
        is_line_comment = comment[0] == "//"
        end = source.find("\n" if is_line_comment else "*/", comment.end())
        position = len(source) if end < 0 else end + (0 if is_line_comment else 2)
        code.append(_NO_NEWLINE.sub(" ", source[comment.start() : position]))
    code.append(source[position:])
    return "".join(code)


def source_text(path: Path) -> str:
    """Return the text of a learner's file.

    The encodings are UTF-8, with or without a byte order mark, UTF-16 with one, and otherwise Latin-1, in which every
    byte is a letter, as an editor on Windows may have left it. A file that is too large to be graded, or not a regular
    file, gives an empty text. Raises OSError.
    """
    try:
        content = read_source(path, MOST_BYTES)
    except Unreadable as error:
        if isinstance(error.__cause__, OSError):
            raise error.__cause__ from None
        return ""
    is_utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    for encoding in ("utf-16",) if is_utf16 else ("utf-8-sig", "latin-1"):
        with contextlib.suppress(UnicodeDecodeError):
            return content.decode(encoding).replace("\r\n", "\n").replace("\r", "\n")
    return content.decode("utf-8", errors="replace")


_COMMENT = re.compile(r"//|/\*")
_NO_NEWLINE = re.compile(r"[^\n]")
_GENERATED = re.compile(r"__pycache__|build|dist|.*\.egg-info|\..*")
"""Matches folders that builds and tests leave in a project."""


def submitted(python: Path) -> tuple[Path, ...]:
    """Return the files that are handed in with a Python file: its .cu file, itself, and those of a folder with its
    stem.

    Of a folder with more than MOST_FILES files, one more than that is returned.
    """
    project = python.with_suffix("")
    project_files = [] if project.is_symlink() else sorted(itertools.islice(_files_below(project), MOST_FILES + 1))
    return *(path for path in (python.with_suffix(".cu"), python) if path.is_file()), *project_files


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
