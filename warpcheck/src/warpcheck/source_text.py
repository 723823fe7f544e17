"""Read the source text of kernels: encodings, limits, comments."""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import stat
from pathlib import Path

__all__ = ["MOST_BYTES", "Unreadable", "blank_comments", "read_source", "source_text"]

MOST_BYTES = 4 << 20
"""Of a source file that is handed in."""


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
