"""What happens at every access to memory: is it allowed, does it race, and what would the hardware have moved.

Generated code calls ``access`` once for each memory instruction of a warp, before the bytes are touched, with the 32
addresses in the warp's record and the active lanes in ``mask``. The functions are compiled by Numba and read as they
run: lane by lane. Each returns 0, or 1 after writing its complaint into the launch's record.
"""

from __future__ import annotations

import numpy as np
from numba import carray, from_dtype, njit, types

from kernelpath.simt import races
from kernelpath.simt.counters import count_sectors, count_wavefronts, least_wavefronts
from kernelpath.simt.errors import FaultKind
from kernelpath.simt.layout import BUFFER, COUNTS, LANES, LAUNCH, SITE, WARP, Access, Space
from kernelpath.simt.pointers import pointer

__all__ = ["SIGNATURE", "access"]

_KINDS = list(FaultKind)
OUT_OF_BOUNDS = _KINDS.index(FaultKind.OUT_OF_BOUNDS)
MISALIGNED = _KINDS.index(FaultKind.MISALIGNED)
UNINITIALIZED = _KINDS.index(FaultKind.UNINITIALIZED)
RACE = _KINDS.index(FaultKind.RACE)
GENERIC, GLOBAL, SHARED, LOCAL = (int(s) for s in (Space.GENERIC, Space.GLOBAL, Space.SHARED, Space.LOCAL))
LOAD, STORE, ATOMIC = int(Access.LOAD), int(Access.STORE), int(Access.ATOMIC)
UNWRITTEN, WRITTEN = 1, 2  # the state of a byte; 0 was set before the launch

Launch, Warp, Site, Counts, Buffer = (from_dtype(record) for record in (LAUNCH, WARP, SITE, COUNTS, BUFFER))
SIGNATURE = types.int32(types.CPointer(Launch), types.CPointer(Warp), types.uint32, types.uint32)


@njit(cache=True)
def access(launch, warp, site_number, mask):
    """Check and count one access of a warp."""
    l, w = carray(launch, 1)[0], carray(warp, 1)[0]
    site = carray(pointer(l.sites, Site), site_number + 1)[site_number]
    counts = carray(pointer(l.counts, Counts), site_number + 1)[site_number]
    site_number = np.int32(site_number)
    mask = np.int64(mask)
    if mask == 0:
        return 0
    counts.requests += 1
    generic = site.space == GENERIC
    space = site.space
    known = carray(pointer(l.known, types.int64), (32, 32))
    buffers = carray(pointer(l.buffers, Buffer), l.buffer_count)
    at = 0
    for lane in range(LANES):
        if not mask >> lane & 1:
            continue
        address = w.addresses[lane]
        if generic:
            space = space_of(l, address)
        if address & (site.bytes - 1):
            return fault(l, w, MISALIGNED, site_number, lane, address, -1)
        if space == SHARED:
            start, size, state, history, granule = l.shared, l.shared_bytes, l.shared_state, l.shared_history, l.shared_granule
        elif space == LOCAL:
            start, size, state, history, granule = local_of(l, w, lane), l.local_bytes, l.local_state, 0, 0
        else:
            at = find(buffers, at, address)
            b = buffers[at]
            start, size, state, history, granule = b.address, b.bytes, b.state, b.history, b.granule
        if address < start or address + site.bytes > start + size:
            return fault(l, w, OUT_OF_BOUNDS, site_number, lane, address, -1)
        offset = address - start
        if space == LOCAL:
            state += start - l.local
        if state and not initialised(state + offset, site.bytes, site.access):
            return fault(l, w, UNINITIALIZED, site_number, lane, address, -1)
        if history:
            entries = carray(pointer(history, types.int64), (size, 2))
            first, last = offset >> granule, (offset + site.bytes - 1) >> granule
            for entry in range(first, last + 1):
                other = races.check(l, known, entries[entry], w.index, lane, site.access, site.strong)
                if other >= 0:
                    return fault(l, w, RACE, site_number, lane, address, other)
        counts.lanes += 1
    if space == SHARED:
        counts.wavefronts += count_wavefronts(w.addresses, mask, site.bytes)
        counts.least += least_wavefronts(w.addresses, mask, site.bytes)
    elif space != LOCAL:
        counts.sectors += count_sectors(w.addresses, mask)
        if site.access == ATOMIC:
            l.acquired = 1
    return 0


@njit(cache=True)
def space_of(l, address):
    """Which space a generic address lies in."""
    if l.shared <= address < l.shared + l.shared_bytes:
        return SHARED
    if l.local <= address < l.local + l.local_bytes * l.ntid[0] * l.ntid[1] * l.ntid[2]:
        return LOCAL
    return GLOBAL


@njit(cache=True)
def local_of(l, w, lane):
    """Where the local memory of one thread begins."""
    return l.local + (w.index * LANES + lane) * l.local_bytes


@njit(cache=True)
def find(buffers, guess, address):
    """The last buffer that begins at or before an address; ``guess`` is tried first."""
    b = buffers[guess]
    if b.address <= address and address - b.address < b.bytes:
        return guess
    low, high = 0, len(buffers)
    while high - low > 1:
        middle = (low + high) // 2
        if buffers[middle].address <= address:
            low = middle
        else:
            high = middle
    return low


@njit(cache=True)
def initialised(address, size, kind):
    """Whether bytes may be read; a store makes them so."""
    state = carray(pointer(address, types.uint8), size)
    if kind != STORE:
        for byte in range(size):
            if state[byte] == UNWRITTEN:
                return False
    if kind != LOAD:
        for byte in range(size):
            state[byte] = WRITTEN
    return True


@njit(cache=True)
def fault(l, w, kind, site, lane, address, other):
    l.fault_kind = kind
    l.fault_site = site
    l.fault_lane = lane
    l.fault_warp = w.index
    l.fault_address = address
    l.fault_other = other
    return 1
