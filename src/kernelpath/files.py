"""Where kernelpath keeps files on this computer, and how it writes them.

KERNELPATH_CACHE names the folder of the cache, else the user's own is it. A submission's process uses a folder of its
own (`use_root`): what it leaves there is never what another one reads. Nothing read from a cache is to be believed
before it is checked.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import secrets
from pathlib import Path

from platformdirs import user_cache_path

__all__ = ["cache_read", "cache_root", "cache_write", "use_root", "write_atomically"]

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
    """Keep `data`. A folder that cannot be written is no error: it only costs time."""
    place = _place(kind, key)
    with contextlib.suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(place, data)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file so that whoever reads it, at any moment, finds the old or the new content whole.

    Raises OSError, with `path` as its file name.
    """
    beside = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
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


def _place(kind: str, key: str) -> Path:
    """Keys are hexadecimal digests: nothing in them leads out of the folder."""
    if not (kind.isidentifier() and key.isalnum()):
        raise ValueError(f"{kind!r}, {key!r} is not the name of something in the cache")
    return cache_root() / kind / key[:2] / key


def source_text(path: Path) -> str:
    """The text of a learner's file: UTF-8, with a mark of byte order or without one; UTF-16 with one; else Latin-1,
    in which every byte is a letter, as an editor on Windows may have left it."""
    content = path.read_bytes()
    marked = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    for encoding in ("utf-16",) if marked else ("utf-8-sig", "latin-1"):
        with contextlib.suppress(UnicodeDecodeError):
            return content.decode(encoding).replace("\r\n", "\n").replace("\r", "\n")
    return content.decode("utf-8", errors="replace")
