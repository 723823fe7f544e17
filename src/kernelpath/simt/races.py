"""Data races between threads, by happens-before.

Time counts synchronisations. ``known[w][v]`` is the time up to which warp w knows what warp v did: accesses of v
stamped earlier happen before whatever w does now. A barrier makes its warps know each other, ``__syncwarp`` makes a
warp know itself. Two accesses of different threads race if one of them writes, neither is atomic with the other, and
neither happens before the other.

The history of a granule of memory is two words: the last write and the reads since. Both hold a time in their upper
half. The lower half of a write holds the thread and whether it was atomic, and the one lane that read, or SEVERAL; the
lower half of a read holds the set of warps that read.
"""

from __future__ import annotations

import numpy as np
from numba import int64, njit

from kernelpath.simt.layout import Access
from kernelpath.simt.pointers import load, store

__all__ = ["check"]

LOAD, ATOMIC = int(Access.LOAD), int(Access.ATOMIC)
WARPS = 32
SEVERAL = 32  # in the place of a lane
THREAD = (1 << 10) - 1
WAS_ATOMIC = 1 << 10
READER = 11  # where the lane that read is kept


@njit
def check(l, floor, entry, warp, lane, kind, strong):
    """Judge one access and record it. Returns the thread that it races with, or -1.

    What happened before the time ``floor`` cannot race: earlier launches; in shared memory, earlier blocks.
    """
    thread = warp * 32 + lane
    write, reads = load(entry, int64), load(entry + 8, int64)
    writer = write & THREAD
    atomic = kind == ATOMIC or strong
    both_atomic = atomic and write & WAS_ATOMIC
    if write and not both_atomic and unordered(l, floor, warp, writer, write >> 32, thread):
        return writer
    if kind == LOAD:
        if not strong:
            record_reader(l, entry, write, reads, warp, lane)
        return -1
    reader = unordered_reader(l, floor, write, reads, warp, lane)
    if reader >= 0:
        return reader
    store(entry, l.time << 32 | (WAS_ATOMIC if atomic else 0) | thread)
    store(entry + 8, np.int64(0))
    return -1


@njit
def unordered(l, floor, warp, other, time, thread):
    """Whether what thread ``other`` did at ``time`` may happen at the same time as what ``thread`` does now."""
    if time < floor:
        return False
    if time < l.block_began:
        return not published(l, time)
    return other != thread and time >= known(l, warp, other >> 5)


@njit
def published(l, time):
    """Whether this block has seen what an earlier block did at ``time``.

    It has if that block issued a fence afterwards and this one has used an atomic since it began: the pattern of
    "the last block to finish".
    """
    if not l.acquired:
        return False
    number = l.block_number
    while load(l.began + 8 * number, int64) > time:
        number -= 1
    return load(l.published + 8 * number, int64) > time


@njit
def known(l, warp, other):
    """The time up to which a warp knows what another one did."""
    return load(l.known + 8 * (WARPS * warp + other), int64)


@njit
def record_reader(l, entry, write, reads, warp, lane):
    """Add a reader to the history. Readers that happen before this one are forgotten."""
    time, warps, me = reads >> 32, reads & 0xFFFFFFFF, np.int64(1) << warp
    reader = lane
    if time < l.block_began or (time < l.time and knows(l, warp, warps, time)):
        warps = 0
    elif warps != me or write >> READER & 63 != lane:
        reader = SEVERAL
    store(entry, write & ~(63 << READER) | reader << READER)
    store(entry + 8, l.time << 32 | warps | me)


@njit
def knows(l, warp, warps, time):
    """Whether a warp knows what all of ``warps`` did at ``time``."""
    other = 0
    while warps:
        if warps & 1 and known(l, warp, other) <= time:
            return False
        warps >>= 1
        other += 1
    return True


@njit
def unordered_reader(l, floor, write, reads, warp, lane):
    """A thread that read what is written now, without the two being ordered; -1 if there is none."""
    time, warps, reader = reads >> 32, reads & 0xFFFFFFFF, write >> READER & 63
    if warps == 0 or time < floor:
        return -1
    if time < l.block_began:
        return -1 if published(l, time) else 0
    other = 0
    while warps:
        if warps & 1 and known(l, warp, other) <= time and (other != warp or reader != lane):
            return other * 32 + (reader if reader < SEVERAL else 0)
        warps >>= 1
        other += 1
    return -1
