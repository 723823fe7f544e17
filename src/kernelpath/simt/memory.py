"""What happens at every access to memory: is it allowed, does it race, and what would the hardware have moved.

Generated code calls ``access`` once for each memory instruction of a warp, before the bytes are touched, with the 32
addresses in the warp's record and the active lanes in ``mask``. The functions are compiled by Numba and read as they
run: lane by lane. Each returns 0, or 1 after writing its complaint into the launch's record.
"""

from __future__ import annotations

import numpy as np
from numba import from_dtype, int64, njit, types, uint8

from kernelpath.simt import races
from kernelpath.simt.counters import count_sectors, count_wavefronts, least_wavefronts
from kernelpath.simt.errors import FAULT_KINDS, FaultKind
from kernelpath.simt.layout import BUFFER, COUNTS, LANES, LAUNCH, SITE, WARP, WRITTEN, Access, Space, field_offset
from kernelpath.simt.pointers import load, record, store

__all__ = ["SIGNATURE", "access"]

OUT_OF_BOUNDS = FAULT_KINDS.index(FaultKind.OUT_OF_BOUNDS)
MISALIGNED = FAULT_KINDS.index(FaultKind.MISALIGNED)
UNINITIALIZED = FAULT_KINDS.index(FaultKind.UNINITIALIZED)
RACE = FAULT_KINDS.index(FaultKind.RACE)
GENERIC, GLOBAL, SHARED, LOCAL = (int(s) for s in (Space.GENERIC, Space.GLOBAL, Space.SHARED, Space.LOCAL))
LOAD, STORE, ATOMIC = int(Access.LOAD), int(Access.STORE), int(Access.ATOMIC)

Launch, Warp, Site, Counts, Buffer = (from_dtype(record) for record in (LAUNCH, WARP, SITE, COUNTS, BUFFER))
SIGNATURE = types.int32(types.int64, types.int64, types.uint32, types.uint32)
SITE_SIZE, COUNTS_SIZE, BUFFER_SIZE = SITE.itemsize, COUNTS.itemsize, BUFFER.itemsize
ADDRESSES, SERVED, OPERANDS = (field_offset(WARP, name) for name in ("addresses", "served", "operands"))


@njit
def access(launch, warp, site_number, mask):
    """Check and count one access of a warp."""
    l, w = record(launch, Launch), record(warp, Warp)
    mask = np.int64(mask)
    if mask == 0:
        return 0
    site = record(l.sites + site_number * SITE_SIZE, Site)
    counts = record(l.counts + site_number * COUNTS_SIZE, Counts)
    counts.requests += 1
    addresses = warp + ADDRESSES
    space, kind, size = site.space, site.access, site.bytes
    generic = space == GENERIC
    buffer = l.buffers
    floor = l.launch_began
    for lane in range(LANES):
        if not mask >> lane & 1:
            continue
        address = load(addresses + 8 * lane, int64)
        if generic:
            space = space_of(l, address)
        if space == SHARED:
            start, extent, floor = l.shared, np.int64(l.shared_bytes), l.block_began
            state, history, granule = l.shared_state, l.shared_history, l.shared_granule
        elif space == LOCAL:
            start, extent = local_of(l, w, lane), np.int64(l.local_bytes)
            state, history, granule = l.local_state + start - l.local, 0, 0
        else:
            buffer = find(l, buffer, address)
            b = record(buffer, Buffer)
            start, extent, state, history, granule = b.address, b.bytes, b.state, b.history, b.granule
        offset = address - start
        if address & (size - 1):
            return fault(l, w, MISALIGNED, site_number, lane, address, -1)
        if offset < 0 or offset + size > extent:
            return fault(l, w, OUT_OF_BOUNDS, site_number, lane, address, -1)
        if not initialised(state + offset, size, kind):
            return fault(l, w, UNINITIALIZED, site_number, lane, address, -1)
        if history:
            for entry in range(offset >> granule, (offset + size - 1 >> granule) + 1):
                other = races.check(l, floor, history + 16 * entry, w.index, lane, kind, site.strong)
                if other >= 0 and not (kind == STORE and harmless(l, warp, site, mask, lane, other)):
                    return fault(l, w, RACE, site_number, lane, address, other)
        counts.lanes += 1
    if space == SHARED:
        counts.wavefronts += count_wavefronts(addresses, mask, size, warp + SERVED)
        counts.least += least_wavefronts(mask, size)
    elif space != LOCAL:
        counts.sectors += count_sectors(addresses, mask)
        if kind == ATOMIC:
            l.acquired = 1
    return 0


@njit
def space_of(l, address):
    """Which space a generic address lies in."""
    if l.shared <= address < l.shared + l.shared_bytes:
        return SHARED
    if l.local <= address < l.local + l.local_bytes * l.ntid[0] * l.ntid[1] * l.ntid[2]:
        return LOCAL
    return GLOBAL


@njit
def local_of(l, w, lane):
    """Where the local memory of one thread begins."""
    return l.local + (w.index * LANES + lane) * l.local_bytes


@njit
def find(l, guess, address):
    """The last buffer that begins at or before an address; ``guess`` is tried first."""
    b = record(guess, Buffer)
    if 0 <= address - b.address < b.bytes:
        return guess
    low, high = np.int64(0), l.buffer_count
    while high - low > 1:
        middle = low + high >> 1
        if record(l.buffers + middle * BUFFER_SIZE, Buffer).address <= address:
            low = middle
        else:
            high = middle
    return l.buffers + low * BUFFER_SIZE


@njit
def initialised(state, size, kind):
    """Whether bytes may be read; a store makes them so. ``state`` is the address of their states."""
    if kind != STORE:  # UNWRITTEN and PENDING are odd
        for byte in range(size):
            if load(state + byte, uint8) & 1:
                return False
    if kind != LOAD:
        for byte in range(size):
            store(state + byte, np.uint8(WRITTEN))
    return True


@njit
def harmless(l, warp, site, mask, lane, other):
    """Whether a store writes what is there already, or what the other lane of this instruction writes."""
    address = load(warp + ADDRESSES + 8 * lane, int64)
    partner = other & 31
    together = other >> 5 == record(warp, Warp).index and mask >> partner & 1
    together = together and load(warp + ADDRESSES + 8 * partner, int64) == address
    size = site.bytes // site.parts
    for part in range(site.parts):
        row = warp + OPERANDS + 256 * part
        theirs = load(row + 8 * partner, int64) if together else number_at(address + part * size, size)
        if load(row + 8 * lane, int64) != theirs:
            return False
    return True


@njit
def number_at(address, size):
    """``size`` bytes as an unsigned number."""
    number = np.int64(0)
    for byte in range(size):
        number |= np.int64(load(address + byte, uint8)) << 8 * byte
    return number


@njit
def fault(l, w, kind, site, lane, address, other):
    l.fault_kind = kind
    l.fault_site = site
    l.fault_lane = lane
    l.fault_warp = w.index
    l.fault_address = address
    l.fault_other = other
    return 1
