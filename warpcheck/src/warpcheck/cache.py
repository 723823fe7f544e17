"""Keep what compilers made on disk, by content, for every process of this user.

WARPCHECK_CACHE names the folder; without it, the folder is the user's cache folder for warpcheck. A process may use a
folder of its own (`use_root`). Check whatever you read from the cache before you rely on it: a crash may have left half
a file, and other programs can write there.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from platformdirs import user_cache_path

__all__ = ["cache_read", "cache_root", "cache_write", "use_root", "write_atomically"]

_root: Path | None = None


def use_root(folder: Path) -> None:
    """Put the cache of this process into `folder`, whatever the environment says."""
    global _root
    _root = folder


def cache_root() -> Path:
    """Return the folder of the cache."""
    if _root is not None:
        return _root
    named = os.environ.get("WARPCHECK_CACHE")
    return Path(named) if named else user_cache_path("warpcheck")


def cache_read(kind: str, key: str) -> bytes | None:
    """Return what was stored as `key` of a `kind`; None if there is nothing or it cannot be read."""
    with contextlib.suppress(OSError):
        return _place(kind, key).read_bytes()
    return None


def cache_write(kind: str, key: str, data: bytes) -> None:
    """Store `data`. A folder that cannot be written to is no error: compiling again only costs time."""
    place = _place(kind, key)
    with contextlib.suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(place, data)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file so that a reader finds either the old content or the new content, and never a part of it.

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


def _place(kind: str, key: str) -> Path:
    """Keys are hexadecimal digests: nothing in them leads out of the folder."""
    if not (kind.isidentifier() and key.isalnum()):
        raise ValueError(f"{kind!r}, {key!r} is not the name of something in the cache")
    return cache_root() / kind / key[:2] / key
