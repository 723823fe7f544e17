"""The records and other memory of a launch, as numpy arrays."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["FAR", "Dim", "Records", "aligned", "span", "zeroed"]

Dim = tuple[int, int, int]

FAR = 1 << 32
"""Size in bytes from which on memory is a lazily committed address range: no 32-bit offset can reach all of it."""

_GAP = 1 << 35
"""Bytes before such a range that are mapped but unused: 2**32 elements of 8 bytes, so that a wrapped offset hits no
other memory.
"""

_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # Python names it from 3.13 on


class Records:
    """One record, and the arrays that it points to."""

    def __init__(self, kind: np.dtype[np.void]) -> None:
        # One element, so that the record has an address that generated code can use.
        self.record = np.zeros(1, kind)
        self.address = int(self.record.ctypes.data)
        self.arrays: dict[str, npt.NDArray[Any]] = {}

    def get(self, name: str) -> int:
        """Return a field of the record."""
        return int(self.record[name][0])

    def set(self, **values: int) -> None:
        """Set fields of the record."""
        for name, value in values.items():
            self.record[name] = value

    def point(self, **arrays: npt.NDArray[Any]) -> None:
        """Keep arrays, and set the fields of the same names to their addresses."""
        for name, array in arrays.items():
            self.arrays[name] = array
            self.record[name] = array.ctypes.data


def zeroed(size: int) -> npt.NDArray[np.uint8]:
    """Return zeroed bytes. From FAR on, pages are committed as they are touched.

    A shared mapping counts against no limit on data, and without a reserve it may be larger than memory.

    Raises:
        MemoryError: The operating system does not grant the address range.
    """
    if size < FAR:
        return np.zeros(size, np.uint8)
    try:
        mapping = mmap.mmap(-1, _GAP + size, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | _NORESERVE)
    except OSError as error:  # where overcommitting memory is forbidden
        raise MemoryError(f"no address span of {size:,} bytes") from error
    return np.frombuffer(mapping, np.uint8)[_GAP:]


def span(size: int) -> npt.NDArray[np.uint8]:
    """Return zeroed bytes that begin at a page, and are committed page by page as they are touched."""
    return np.frombuffer(mmap.mmap(-1, size, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | _NORESERVE), np.uint8)


def aligned(size: int) -> npt.NDArray[np.uint8]:
    """Return zeroed bytes whose address is a multiple of 256."""
    memory = np.zeros(size + 512, np.uint8)
    return memory[-memory.ctypes.data % 256 :]
