"""Choose the addresses that kernels see, as a function of the transcript only.

A kernel may read the address of a tensor and compute with it. If the operating system chose the address, host code
could influence it, for example by allocating before a launch, and so pass results to a kernel through a hidden channel.
An `AddressSpace` therefore places storages itself, one after another in the order of their first launches. The
transcript has that order, each storage's size and its alignment, so equal transcripts mean equal distances.
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

# The alignment of a storage's start before its misalignment is added, as in the submission's process.
LINE = aligned.ALIGNMENT

# The size in bytes up to which storages share a mapping: an optimizer has hundreds of small tensors.
_MAX_SHARED_STORAGE = 1 << 16

# The size in bytes of a shared mapping.
_SHARED_MAPPING = 1 << 24

# The unused bytes before a storage with a mapping of its own.
#
# An index that is off by some rows, or with exchanged strides, must not reach another tensor. Untouched pages take no
# memory.
_GUARD = 1 << 20

# The unused bytes after a storage in a shared mapping.
_SHARED_GUARD = 1 << 16

# The first address of all spaces. Linux places mappings without a chosen address far above or below them.
_FIRST_ADDRESS = 1 << 44

_SPACE_BYTES = 1 << 41
# The last space ends at 1.5 * 2**46, below the 2**47 bytes that a process has on x86-64. Source: Linux kernel
# documentation, "Memory Management" of x86-64.
_MAX_SPACES = 40

# The offset in a space of the address spans for large offsets.
_SPANS_START = _SPACE_BYTES // 2

# The unused bytes before an address span: 2**32 elements of 8 bytes, so that no wrapped offset reaches a storage.
_GAP = 1 << 35

# Constants of mmap(2) on Linux x86-64 and arm64.
_PROT_READ_WRITE = 3
_MAP_SHARED = 1
_MAP_PRIVATE = 2
_MAP_ANONYMOUS = 0x20
_MAP_NORESERVE = 0x4000
_MAP_POPULATE = 0x8000
_MAP_FIXED_NOREPLACE = 0x100000
_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

_numbers = itertools.count()


class AddressSpace:
    """Place the storages of one client. The spaces of a process do not overlap, up to 40 clients."""

    def __init__(self) -> None:
        self._start = _FIRST_ADDRESS + next(_numbers) % _MAX_SPACES * _SPACE_BYTES
        self._used_bytes = 0
        self._spans_end = _SPANS_START
        self._shared_mapping = np.empty(0, np.uint8)

    def place(self, nbytes: int, alignment: int = 0) -> Bytes:
        """Return zeroed bytes that start `alignment` bytes after a multiple of LINE.

        They are unmapped when the last array that refers to them is gone.

        Raises:
            InvalidRequest: The space has no addresses left.
            MemoryError: The operating system has no memory left.
        """
        if nbytes + alignment > _MAX_SHARED_STORAGE:
            return self._map(nbytes, alignment)
        # Rounded up, so that the next storage starts at a multiple of LINE, too.
        nbytes_with_guard = -(-(alignment + nbytes) // LINE) * LINE + _SHARED_GUARD
        if nbytes_with_guard > self._shared_mapping.size:
            self._shared_mapping = self._map(_SHARED_MAPPING, 0, populate=False)
        memory = self._shared_mapping[:nbytes_with_guard]
        self._shared_mapping = self._shared_mapping[nbytes_with_guard:]
        return memory[alignment : alignment + nbytes]

    def _map(self, nbytes: int, alignment: int, populate: bool = True) -> Bytes:
        """Place bytes in a mapping of their own.

        Args:
            populate: Whether to allocate the pages now instead of at their first access.
        """
        length = -(-(alignment + nbytes) // PAGE) * PAGE
        if nbytes >= simt.FAR:
            offset = self._spans_end + _GAP
            self._spans_end = offset + length
        else:
            offset = self._used_bytes + _GUARD
            self._used_bytes = offset + length
        if self._used_bytes > _SPANS_START or self._spans_end > _SPACE_BYTES:
            raise InvalidRequest("the tensors of this process have taken all addresses that there are")
        return _map_at(self._start + offset, length, populate)[alignment : alignment + nbytes]

    def forget_spans(self) -> None:
        """Allow the reuse of all span addresses. The caller has dropped all spans."""
        self._spans_end = _SPANS_START


def _map_at(address: int, length: int, populate: bool) -> Bytes:
    """Return zeroed bytes at an address, or elsewhere if the address is not available.

    A span gets a shared mapping, which RLIMIT_DATA does not count, without a reserve, so that it may exceed the memory.
    """
    if length >= simt.FAR:
        flags = _MAP_ANONYMOUS | _MAP_SHARED | _MAP_NORESERVE
    else:
        flags = _MAP_ANONYMOUS | _MAP_PRIVATE | (_MAP_POPULATE if populate else 0)
    for fixed in (_MAP_FIXED_NOREPLACE, 0):
        mapping = _libc.mmap(address if fixed else None, length, _PROT_READ_WRITE, flags | fixed, -1, 0)
        if mapping not in (None, _FAILED) and (not fixed or mapping == address):
            break
        if mapping not in (None, _FAILED):  # Linux before 4.17 treats the address as a hint
            _libc.munmap(mapping, length)
    else:
        raise MemoryError(f"no memory for {length:,} bytes: {os.strerror(ctypes.get_errno())}")
    memory = (ctypes.c_uint8 * length).from_address(mapping)
    weakref.finalize(memory, _libc.munmap, mapping, length)
    return np.ctypeslib.as_array(memory)
