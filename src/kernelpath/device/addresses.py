"""The addresses that kernels see: a function of the transcript, and of nothing else.

A kernel may read the address of a tensor and compute with it. If the operating system chose that address, a host could
move it, for example by allocating before a launch, and so tell a kernel what it must not tell: results.
An `AddressSpace` therefore places storages itself, one behind another in the order in which launches are given them.
The transcript has that order, each storage's size and its alignment, so equal transcripts mean equal distances.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import weakref

import numpy as np

from kernelpath.device import aligned
from kernelpath.device.elements import Bytes, InvalidRequest
from warpcheck import simt

PAGE = 4096

LINE = aligned.ALIGNMENT
"""What the start of a storage is aligned to, besides its misalignment: as in the submission's process."""

_SMALL, _CHUNK = 1 << 16, 1 << 24
"""Bytes of storages that share a mapping, and of such a mapping: an optimizer has hundreds of small tensors."""

_GUARD, _SMALL_GUARD = 1 << 20, 1 << 16
"""Bytes before a storage, and behind one that shares a mapping, where nothing lies: an index that is off by some rows,
or two strides that are exchanged, must not lead to another tensor. Nothing touches them, so they take no memory."""

_FIRST, _EACH, _SPACES = 1 << 44, 1 << 41, 40
"""The addresses of all spaces, and of each. Linux places what no one chooses an address for far above or below."""

_HALF = _EACH // 2
"""Where the address spans of large offsets begin in a space."""

_GAP = 1 << 35
"""Bytes before an address span where nothing lies: 2**32 elements of 8 bytes, so that no wrapped offset meets another
storage."""

_PROT_READ_WRITE, _MAP_SHARED, _MAP_PRIVATE, _MAP_ANONYMOUS = 3, 1, 2, 0x20
_MAP_NORESERVE, _MAP_POPULATE, _MAP_FIXED_NOREPLACE = 0x4000, 0x8000, 0x100000
_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

_numbers = itertools.count()


class AddressSpace:
    """Places the storages of one client. No two spaces of a process overlap."""

    def __init__(self) -> None:
        self._start = _FIRST + next(_numbers) % _SPACES * _EACH
        self._used = 0
        self._used_by_spans = _HALF
        self._chunk = np.empty(0, np.uint8)

    def place(self, nbytes: int, alignment: int = 0) -> Bytes:
        """Return zeroed bytes that begin `alignment` bytes behind a line. They are unmapped when no array is left.

        Raises InvalidRequest where the space is used up, and MemoryError.
        """
        if nbytes + alignment > _SMALL:
            return self._map(nbytes, alignment)
        room = -(-(alignment + nbytes) // LINE) * LINE + _SMALL_GUARD
        if room > self._chunk.size:
            self._chunk = self._map(_CHUNK, 0, populate=False)
        placed, self._chunk = self._chunk[:room], self._chunk[room:]
        return placed[alignment : alignment + nbytes]

    def _map(self, nbytes: int, alignment: int, populate: bool = True) -> Bytes:
        """As `place`, in a mapping of its own. populate: take its memory now, not when it is touched."""
        length = -(-(alignment + nbytes) // PAGE) * PAGE
        if nbytes >= simt.FAR:
            offset = self._used_by_spans + _GAP
            self._used_by_spans = offset + length
        else:
            offset = self._used + _GUARD
            self._used = offset + length
        if self._used > _HALF or self._used_by_spans > _EACH:
            raise InvalidRequest("the tensors of this process have taken all addresses that there are")
        return _mapped(self._start + offset, length, populate)[alignment : alignment + nbytes]

    def forget_spans(self) -> None:
        """Give the addresses of spans of simt.FAR bytes and more out again: none of them is left."""
        self._used_by_spans = _HALF


def _mapped(address: int, length: int, populate: bool) -> Bytes:
    """Return zeroed bytes at an address, or elsewhere where the process has no such address or has given it away.

    A shared mapping counts against no limit on data, and without a reserve it may be larger than memory.
    """
    if length >= simt.FAR:
        flags = _MAP_ANONYMOUS | _MAP_SHARED | _MAP_NORESERVE
    else:
        flags = _MAP_ANONYMOUS | _MAP_PRIVATE | (_MAP_POPULATE if populate else 0)
    for fixed in (_MAP_FIXED_NOREPLACE, 0):
        mapped = _libc.mmap(address if fixed else None, length, _PROT_READ_WRITE, flags | fixed, -1, 0)
        if mapped not in (None, _FAILED) and (not fixed or mapped == address):
            break
        if mapped not in (None, _FAILED):  # a kernel before 4.17 takes the address for a hint
            _libc.munmap(mapped, length)
    else:
        raise MemoryError(f"no memory for {length:,} bytes: {os.strerror(ctypes.get_errno())}")
    memory = (ctypes.c_uint8 * length).from_address(mapped)
    weakref.finalize(memory, _libc.munmap, mapped, length)
    return np.ctypeslib.as_array(memory)
