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
from numba import carray, njit, types

from kernelpath.simt.layout import Access
from kernelpath.simt.pointers import pointer

__all__ = ["check"]

LOAD, ATOMIC = int(Access.LOAD), int(Access.ATOMIC)
WARPS = 32
SEVERAL = 32  # in the place of a lane
THREAD = (1 << 10) - 1
WAS_ATOMIC = 1 << 10
READER = 11  # where the lane that read is kept


@njit(cache=True)
def check(l, known, entry, warp, lane, kind, strong):
    """Judge one access and record it. Returns the thread that it races with, or -1."""
    thread = warp * 32 + lane
    write, reads = entry[0], entry[1]
    writer = write & THREAD
    atomic = kind == ATOMIC or strong
    both_atomic = atomic and write & WAS_ATOMIC
    if write and not both_atomic and unordered(l, known, warp, writer, write >> 32, thread):
        return writer
    if kind == LOAD:
        if not strong:
            entry[0], entry[1] = with_reader(l, known, write, reads, warp, lane)
        return -1
    reader = unordered_reader(l, known, write, reads, warp, lane)
    if reader >= 0:
        return reader
    entry[0] = l.time << 32 | (WAS_ATOMIC if atomic else 0) | thread
    entry[1] = 0
    return -1


@njit(cache=True)
def unordered(l, known, warp, other, time, thread):
    """Whether what thread ``other`` did at ``time`` may happen at the same time as what ``thread`` does now."""
    if time < l.block_began:
        return not published(l, time)
    return other != thread and time >= known[warp, other >> 5]


@njit(cache=True)
def published(l, time):
    """Whether this block has seen what an earlier block did at ``time``.

    It has if that block issued a fence afterwards and this one has used an atomic since it began: the pattern of
    "the last block to finish". Earlier launches are always seen.
    """
    if time < l.launch_began:
        return True
    if not l.acquired:
        return False
    began = carray(pointer(l.began, types.int64), l.block_number + 1)
    number = np.searchsorted(began, time, side="right") - 1
    return carray(pointer(l.published, types.int64), number + 1)[number] > time


@njit(cache=True)
def with_reader(l, known, write, reads, warp, lane):
    """The history with one more reader. Readers that happen before this one are forgotten."""
    time, warps, me = reads >> 32, reads & 0xFFFFFFFF, np.int64(1) << warp
    reader = lane
    if time < l.block_began or known_to(known, warp, warps, time):
        warps = 0
    elif warps != me or write >> READER & 63 != lane:
        reader = SEVERAL
    return write & ~(63 << READER) | reader << READER, l.time << 32 | warps | me


@njit(cache=True)
def known_to(known, warp, warps, time):
    for other in range(WARPS):
        if warps >> other & 1 and known[warp, other] <= time:
            return False
    return True


@njit(cache=True)
def unordered_reader(l, known, write, reads, warp, lane):
    """A thread that read what is written now, without the two being ordered; -1 if there is none."""
    time, warps, reader = reads >> 32, reads & 0xFFFFFFFF, write >> READER & 63
    if warps == 0:
        return -1
    if time < l.block_began:
        return -1 if published(l, time) else 0
    for other in range(WARPS):
        if warps >> other & 1 and known[warp, other] <= time and (other != warp or reader != lane):
            return other * 32 + (reader if reader < SEVERAL else 0)
    return -1
