"""Prepare Triton once in a parent process, before the processes that compile with it are forked."""

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from warpcheck.cache import cache_read, cache_write
from warpcheck.hooks import Changed
from warpcheck.hooks import triton as hooks

os.environ.pop("TRITON_INTERPRET", None)  # a learner's, for print and pdb: what is graded is what the compiler makes

import triton.experimental.gluon  # the first launch imports it


def read_digest_once() -> None:
    """Let Triton compute its own digest once for each installation, not once for each process.

    Triton's cache identifies a kernel by a digest of Triton itself, hundreds of megabytes that take 0.5 s to read. The
    digest is the same as long as no file of the package has another size or date. This runs before a submission is
    loaded, and a submission cannot write to this cache; with a wrong digest it would find its own old kernels.
    """
    with suppress(Changed):
        compute_digest = hooks.DIGEST.get()
        key = hashlib.sha256(repr(_dated_files(Path(triton.__file__).parent)).encode()).hexdigest()
        entry = cache_read("triton", key)
        digest = entry.decode() if entry and entry.isascii() else ""
        if not digest.startswith(triton.__version__):  # nothing is kept, or something else
            digest = compute_digest()
            cache_write("triton", key, digest.encode())
        hooks.DIGEST.replace(lambda: digest)


def _dated_files(folder: Path) -> list[tuple[str, int, int]]:
    """Return path, size and date of every file below a folder, but for what Python compiled."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".pyc"]
    return [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files]


read_digest_once()
