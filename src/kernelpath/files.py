"""Where kernelpath keeps files on this computer, and how it writes them.

The cache has two layers. KERNELPATH_CACHE names the shared one, else the user's own folder is it. Where
KERNELPATH_CACHE_PRIVATE names another, reads look there first and writes go there only: what an untrusted process
writes is then not what the next one reads. Nothing read from a cache is to be believed before it is checked.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from platformdirs import user_cache_path

__all__ = ["cache_read", "cache_root", "cache_write", "write_atomically"]


def cache_root() -> Path:
    """The folder of the shared cache."""
    named = os.environ.get("KERNELPATH_CACHE")
    return Path(named) if named else user_cache_path("kernelpath")


def cache_read(kind: str, key: str) -> bytes | None:
    """What was kept as ``key`` among things of one ``kind``; None where nothing was, or it cannot be read."""
    for root in _private(), cache_root():
        if root is not None:
            with suppress(OSError):
                return _place(root, kind, key).read_bytes()
    return None


def cache_write(kind: str, key: str, data: bytes) -> None:
    """Keep ``data``. A folder that cannot be written is no error: it only costs time."""
    with suppress(OSError):
        write_atomically(_place(_private() or cache_root(), kind, key), data)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that nobody ever reads half of it; makes its folder. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name[:40]}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(name, 0o666 & ~_umask())  # subtle: mkstemp's files are for their owner only
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def _private() -> Path | None:
    named = os.environ.get("KERNELPATH_CACHE_PRIVATE")
    return Path(named) if named else None


def _place(root: Path, kind: str, key: str) -> Path:
    """Keys are hexadecimal digests: nothing in them leads out of the folder."""
    if not (kind.isidentifier() and key.isalnum()):
        raise ValueError(f"{kind!r}, {key!r} is not the name of something in the cache")
    return root / kind / key[:2] / key


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
