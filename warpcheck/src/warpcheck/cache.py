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
    """Put the cache of this process in `folder`, whatever the environment says."""
    global _root
    _root = folder


def cache_root() -> Path:
    """Return the folder of the cache."""
    if _root is not None:
        return _root
    configured = os.environ.get("WARPCHECK_CACHE")
    return Path(configured) if configured else user_cache_path("warpcheck")


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
        # tempfile would make the file unreadable for other users, and the file may be a page to publish.
        with temporary.open("xb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):  # after Ctrl-C it may already have been renamed
            temporary.unlink()
        if isinstance(error, OSError):
            error.filename = str(path)
        raise


def _cache_path(kind: str, key: str) -> Path:
    """Return the path of an entry. Keys are hexadecimal digests, so nothing in them leads out of the folder."""
    if not (kind.isidentifier() and key.isalnum()):
        raise ValueError(f"{kind!r}, {key!r} is not the name of something in the cache")
    return cache_root().joinpath(kind, key[:2], key)
