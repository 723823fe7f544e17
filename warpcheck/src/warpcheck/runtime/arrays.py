"""Records and other memory of a launch, as numpy arrays."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["FAR", "Dim", "Records", "aligned", "span", "zeroed"]

Dim = tuple[int, int, int]

FAR = 1 << 32
"""Bytes from which on memory is an address span: no 32-bit offset reaches all of it."""

_GAP = 1 << 35
"""Bytes before a span where nothing lies: 2**32 elements of 8 bytes, so that an offset that wrapped meets no other."""

_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # Python names it from 3.13 on


class Records:
    """One record, and the arrays that it points to."""

    def __init__(self, kind: np.dtype[np.void]) -> None:
        self.record = np.zeros(1, kind)
        self.address = int(self.record.ctypes.data)
        self.arrays: dict[str, npt.NDArray[Any]] = {}

    def get(self, name: str) -> int:
        return int(self.record[name][0])

    def set(self, **values: int) -> None:
        for name, value in values.items():
            self.record[name] = value

    def point(self, **arrays: npt.NDArray[Any]) -> None:
        """Keep arrays, and set the fields of their names to their addresses."""
        for name, array in arrays.items():
            self.arrays[name] = array
            self.record[name] = array.ctypes.data


def zeroed(size: int) -> npt.NDArray[np.uint8]:
    """Zeroed bytes. From FAR on they take memory page by page, as they are touched; raises MemoryError like the others.

    A shared mapping counts against no limit on data, and without a reserve it may be larger than memory.
    """
    if size < FAR:
        return np.zeros(size, np.uint8)
    try:
        span = mmap.mmap(-1, _GAP + size, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | _NORESERVE)
    except OSError as error:  # where overcommitting memory is forbidden
        raise MemoryError(f"no address span of {size:,} bytes") from error
    return np.frombuffer(span, np.uint8)[_GAP:]


def span(size: int) -> npt.NDArray[np.uint8]:
    """Zeroed bytes that begin at a page and take memory page by page, as they are touched."""
    return np.frombuffer(mmap.mmap(-1, size, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | _NORESERVE), np.uint8)


def aligned(size: int) -> npt.NDArray[np.uint8]:
    """Zeroed bytes that begin at a multiple of 256."""
    memory = np.zeros(size + 512, np.uint8)
    return memory[-memory.ctypes.data % 256 :]
