"""The records and other memory of a launch, as numpy arrays."""

from __future__ import annotations

import ctypes
import math
import mmap
import struct
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["FAR", "RECORD", "Dim", "Place", "RecordLayout", "Records", "address_of", "aligned", "span", "zeroed"]

Dim = tuple[int, int, int]

# Size in bytes from which on memory is a lazily committed address range: no signed 32-bit offset can reach all of it.
FAR = 1 << 31

# Bytes before such a range that are mapped but unused: 2**32 elements of 8 bytes, so that a wrapped offset hits no
# other memory.
_GAP = 1 << 35

_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # Python names it from 3.13 on


# The alignment in bytes of the first array of an allocation: that of the atoms of the widest swizzle.
FIRST_ALIGNMENT = 1024


RECORD = "the record"


class Place(NamedTuple):
    """A place in a layout: so many bytes behind the beginning of an array, or of the RECORD."""

    array: str
    offset: int = 0


class RecordLayout:
    """A record and the arrays that it points to, laid out in one allocation.

    A launch needs some thirty arrays, and most of them are small. Launches that differ only in their data share a
    layout, so that a launch has little more to do than to allocate it. The record comes behind the arrays.

    Args:
        kind: The type of the record.
        arrays: The element type and the extents of each array, by the name of the field that has its address. Each
            begins at a multiple of 256 bytes, and the first at a multiple of FIRST_ALIGNMENT. An array may also have a
            name that is no field.
        values: The initial values of other fields; without them, these are 0.
        addresses: Fields that have the address of another place.
        contents: The initial contents of arrays that are not zero at first.
        links: Places of words that have the address of another place.
    """

    def __init__(
        self,
        kind: np.dtype[np.void],
        arrays: Mapping[str, tuple[Any, ...]],
        values: Mapping[str, int],
        addresses: Mapping[str, Place] = MappingProxyType({}),
        contents: Mapping[str, npt.NDArray[Any]] = MappingProxyType({}),
        links: Mapping[Place, Place] = MappingProxyType({}),
    ) -> None:
        self.fields = _scalar_fields(kind)
        self.views: dict[str, tuple[tuple[int, ...], np.dtype[Any], int]] = {}
        end = 0
        for name, (element, *extents) in arrays.items():
            dtype = np.dtype(element)
            self.views[name] = tuple(extents), dtype, end
            end += -(-math.prod(extents) * dtype.itemsize // 256) * 256
        self.record_bytes = slice(end, end + kind.itemsize)
        self.size = end + kind.itemsize
        record = bytearray(kind.itemsize)
        for name, value in values.items():
            packing, offset = self.fields[name]
            packing.pack_into(record, offset, value)
        initial = {name: array.reshape(-1).view(np.uint8) for name, array in contents.items()}
        starts = {RECORD: end, **{name: start for name, (_, _, start) in self.views.items()}}
        self._contents = [
            (slice(starts[name], starts[name] + content.size), content)
            for name, content in (*initial.items(), (RECORD, np.frombuffer(record, np.uint8)))
        ]
        fields = {name: Place(name) for name in self.views if name in self.fields} | dict(addresses)
        links = {Place(RECORD, self.fields[name][1]): place for name, place in fields.items()} | dict(links)
        # The numbers of the words that have addresses, and what the addresses are relative to the first array's.
        self._links = np.array([(starts[place.array] + place.offset) // 8 for place in links])
        self._targets = np.array([starts[target.array] + target.offset for target in links.values()])

    def write(self, memory: npt.NDArray[np.uint8], address: int) -> None:
        """Write the record, and the initial contents of arrays, to zeroed memory at this address."""
        for place, content in self._contents:
            memory[place] = content
        memory.view(np.int64)[self._links] = self._targets + address


class Records:
    """One record, and the arrays that it points to.

    Attributes:
        address: The address of the record, for generated code.
        layout: The layout of the record with its arrays, which are zero at first.
    """

    def __init__(self, layout: RecordLayout) -> None:
        self.layout = layout
        memory = np.zeros(layout.size + FIRST_ALIGNMENT, np.uint8)
        start = address_of(memory)
        padding = -start % FIRST_ALIGNMENT
        start += padding
        self._memory = memory[padding : padding + layout.size]
        layout.write(self._memory, start)
        self._bytes = self._memory[layout.record_bytes].data
        self.address = start + layout.record_bytes.start
        self._fields = layout.fields
        self._arrays: dict[str, npt.NDArray[Any]] = {}

    def get(self, name: str) -> int:
        """Return a field of the record."""
        packing, offset = self._fields[name]
        value: int = packing.unpack_from(self._bytes, offset)[0]
        return value

    def set(self, **values: int) -> None:
        """Set fields of the record."""
        for name, value in values.items():
            packing, offset = self._fields[name]
            packing.pack_into(self._bytes, offset, value)

    def array(self, name: str) -> npt.NDArray[Any]:
        """Return an array by the name of the field that has its address."""
        # Most arrays are read by generated code alone, so that most launches need no view of them.
        if name not in self._arrays:
            extents, dtype, start = self.layout.views[name]
            self._arrays[name] = np.ndarray(extents, dtype, self._memory, start)
        return self._arrays[name]

    def has_array(self, name: str) -> bool:
        """Return whether the field of this name has the address of an array."""
        return name in self._arrays or name in self.layout.views

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays."""
        return sum(self.array(name).nbytes for name in {*self.layout.views, *self._arrays})

    def point(self, **arrays: npt.NDArray[Any]) -> None:
        """Keep arrays that are in memory of their own, and set the fields of the same names to their addresses."""
        for name, array in arrays.items():
            self._arrays[name] = array
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

    A launch needs a dozen addresses, and ``array.ctypes.data`` takes four times as long.
    """
    exporter: Any = array  # of the buffer protocol, which NumPy's types do not tell
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(exporter))
    except (TypeError, ValueError):  # it is empty, not contiguous, or not writable
        return int(array.ctypes.data)


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
    return memory[-address_of(memory) % 256 :]
