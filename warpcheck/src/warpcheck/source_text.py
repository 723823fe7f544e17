"""Read the source text of kernels: encodings, limits, comments."""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import stat
from pathlib import Path

__all__ = ["MOST_BYTES", "Unreadable", "blank_comments", "read_source", "source_text"]

# The size of a source file that is handed in, at most.
MOST_BYTES = 4 << 20


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
