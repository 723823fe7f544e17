"""The records and other memory of a launch, as numpy arrays."""

from __future__ import annotations

import ctypes
import math
import mmap
import struct
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["FAR", "Dim", "Records", "address_of", "aligned", "span", "zeroed"]

Dim = tuple[int, int, int]

FAR = 1 << 32
"""Size in bytes from which on memory is a lazily committed address range: no 32-bit offset can reach all of it."""

_GAP = 1 << 35
"""Bytes before such a range that are mapped but unused: 2**32 elements of 8 bytes, so that a wrapped offset hits no
other memory.
"""

_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # Python names it from 3.13 on


FIRST_ALIGNMENT = 1024
"""The alignment in bytes of the first array of an allocation: that of the atoms of the widest swizzle."""


class Records:
    """One record, and the arrays that it points to."""

    def __init__(self, kind: np.dtype[np.void]) -> None:
        # One element, so that the record has an address that generated code can use.
        self.record = np.zeros(1, kind)
        self.address = address_of(self.record)
        self.arrays: dict[str, npt.NDArray[Any]] = {}
        self._bytes = self.record.view(np.uint8).data
        self._fields = _scalar_fields(kind)

    def get(self, name: str) -> int:
        """Return a field of the record."""
        packing, offset = self._fields[name]
        (value,) = packing.unpack_from(self._bytes, offset)
        return int(value)

    def set(self, **values: int) -> None:
        """Set fields of the record."""
        for name, value in values.items():
            packing, offset = self._fields[name]
            packing.pack_into(self._bytes, offset, value)

    def create(self, **arrays: tuple[Any, ...]) -> None:
        """Make zeroed arrays, each at a multiple of 256 bytes, keep them, and set the fields of the same names.

        The first is at a multiple of FIRST_ALIGNMENT.

        They are in one allocation: a launch needs some twenty arrays, and most of them are small.

        arrays: The element type and the extents of each.
        """
        sizes = [math.prod(shape) * np.dtype(dtype).itemsize for dtype, *shape in arrays.values()]
        starts = list(accumulate((-(-size // 256) * 256 for size in sizes), initial=0))
        memory = aligned(starts[-1], FIRST_ALIGNMENT)
        address = address_of(memory)
        for (name, (dtype, *shape)), start in zip(arrays.items(), starts, strict=False):
            self.arrays[name] = np.ndarray(shape, dtype, memory.data, start)
            packing, offset = self._fields[name]
            packing.pack_into(self._bytes, offset, address + start)

    def point(self, **arrays: npt.NDArray[Any]) -> None:
        """Keep arrays, and set the fields of the same names to their addresses."""
        for name, array in arrays.items():
            self.arrays[name] = array
            packing, offset = self._fields[name]
            packing.pack_into(self._bytes, offset, address_of(array))


@cache
def _scalar_fields(kind: np.dtype[np.void]) -> dict[str, tuple[struct.Struct, int]]:
    """Return the packing and the offset of each field that is an integer.

    A launch sets some hundred fields, which takes struct a tenth of the time that numpy needs.
    """
    assert kind.fields is not None
    return {
        name: (struct.Struct(_STRUCT_CODES[field[0].str[1:]]), int(field[1]))
        for name, field in kind.fields.items()
        if field[0].str[1:] in _STRUCT_CODES
    }


_STRUCT_CODES = {"i8": "<q", "u8": "<Q", "i4": "<i", "u4": "<I", "i2": "<h", "u2": "<H", "i1": "<b", "u1": "<B"}


def address_of(array: npt.NDArray[Any]) -> int:
    """Return the address of an array's first byte.

    A launch needs some fifty addresses, and ``array.ctypes.data`` takes four times as long.
    """
    if not array.size or not array.flags.writeable:
        return int(array.ctypes.data)
    return ctypes.addressof(ctypes.c_char.from_buffer(array.data))


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


def aligned(size: int, alignment: int = 256) -> npt.NDArray[np.uint8]:
    """Return zeroed bytes whose address is a multiple of `alignment`."""
    memory = np.zeros(size + 2 * alignment, np.uint8)
    return memory[-address_of(memory) % alignment :]
