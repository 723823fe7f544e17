"""How warps come to know of each other's accesses: ``__syncwarp``, fences, asynchronous copies.

``races`` uses what is kept here; the barriers of a thread block are the scheduler's.
"""

from __future__ import annotations

import numpy as np
from numba import int64, njit

from kernelpath.simt.layout import COPIES, COPY, LANES, PENDING, WRITTEN
from kernelpath.simt.memory import ADDRESSES, Launch, Warp
from kernelpath.simt.pointers import load, record, store
from kernelpath.simt.races import THREAD, WARPS

__all__ = ["commit_async", "copy_async", "fence", "wait_async", "warp_sync"]

COPY_SIZE = COPY.itemsize


@njit
def warp_sync(launch, warp, argument, mask):
    """The lanes of a warp wait for each other: it knows all that it did before."""
    l, w = record(launch, Launch), record(warp, Warp)
    l.time += 1
    store(l.known + 8 * (WARPS * w.index + w.index), l.time)
    return 0


@njit
def fence(launch, warp, argument, mask):
    """What the thread block wrote before may be seen by blocks that use an atomic later."""
    l = record(launch, Launch)
    l.time += 1
    store(l.published + 8 * l.block_number, l.time)
    return 0


@njit
def copy_async(launch, warp, size, mask):
    """Remember what a cp.async has begun to write: it may not be read before a wait."""
    l, w = record(launch, Launch), record(warp, Warp)
    if w.copies_begun - w.copies_ended == COPIES:
        finish(l, w)
    copy = copy_of(l, w, w.copies_begun)
    w.copies_begun += 1
    store(copy, np.int64(w.group))
    store(copy + 8, np.int64(mask))
    store(copy + 16, np.int64(size))
    for lane in range(LANES):
        address = load(warp + ADDRESSES + 8 * lane, int64)
        store(copy + 24 + 8 * lane, address)
        if mask >> lane & 1:
            set_state(l, address, size, PENDING)
    return 0


@njit
def commit_async(launch, warp, argument, mask):
    """The copies begun so far are a group."""
    record(warp, Warp).group += 1
    return 0


@njit
def wait_async(launch, warp, allowed, mask):
    """Wait until at most ``allowed`` groups are under way; with all bits set, for everything."""
    l, w = record(launch, Launch), record(warp, Warp)
    everything = allowed == 0xFFFFFFFF
    while w.copies_ended < w.copies_begun:
        if not everything and load(copy_of(l, w, w.copies_ended), int64) >= w.group - np.int64(allowed):
            break
        finish(l, w)
    return 0


@njit
def finish(l, w):
    """The oldest copy is done: for other threads its writes happen now."""
    copy = copy_of(l, w, w.copies_ended)
    w.copies_ended += 1
    mask, size = load(copy + 8, int64), load(copy + 16, int64)
    for lane in range(LANES):
        if mask >> lane & 1:
            address = load(copy + 24 + 8 * lane, int64)
            set_state(l, address, size, WRITTEN)
            stamp(l, w, lane, address, size)


@njit
def copy_of(l, w, number):
    return l.copies + (np.int64(w.index) * COPIES + number % COPIES) * COPY_SIZE


@njit
def set_state(l, address, size, state):
    for byte in range(size):
        store(l.shared_state + address - l.shared + byte, np.uint8(state))


@njit
def stamp(l, w, lane, address, size):
    """Date the write of a thread, unless another one has written since."""
    offset = address - l.shared
    for granule in range(offset >> l.shared_granule, (offset + size - 1 >> l.shared_granule) + 1):
        entry = l.shared_history + 16 * granule
        thread = np.int64(w.index) * LANES + lane
        if load(entry, int64) & THREAD == thread:
            store(entry, l.time << 32 | thread)
