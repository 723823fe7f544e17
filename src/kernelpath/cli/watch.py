"""Tells when files were saved. Polls, because that works on every file system that an editor may save to."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

POLL_SECONDS = 0.05


def saves(paths: Sequence[Path]) -> Iterator[None]:
    """Yield at once, and then after every change of one of the files. A file that is gone counts once it is back."""
    seen: list[tuple[int, int]] | None = None
    while True:
        now = _stamps(paths)
        if now is not None and now != seen:
            seen = now
            yield
        else:
            time.sleep(POLL_SECONDS)


def _stamps(paths: Sequence[Path]) -> list[tuple[int, int]] | None:
    try:
        return [(status.st_mtime_ns, status.st_size) for status in map(Path.stat, paths)]
    except FileNotFoundError:
        return None
