"""Data races between threads, by happens-before.

Time counts synchronisations. ``known[w][v]`` is the time up to which warp w knows what warp v did: accesses of v
stamped earlier happen before whatever w does now. A barrier makes its warps know each other, ``__syncwarp`` makes a
warp know itself. Two accesses of different threads race if one of them writes, neither happens before the other, and
they are not an atomic operation and another one or a read: a loop around compare-and-swap begins with a plain read.

The history of a granule of memory is two words: the last write and the reads since. Both hold a time in their upper
half. The lower half of a write holds the thread and whether it was atomic, and the one lane that read, or SEVERAL; the
lower half of a read holds the set of warps that read.
"""

from __future__ import annotations

from kernelpath.simt.layout import Access, LaunchRecord
from kernelpath.simt.native import load64, native, store64

__all__ = ["check"]

LOAD, ATOMIC = int(Access.LOAD), int(Access.ATOMIC)
WARPS = 32
SEVERAL = 32  # in the place of a lane
THREAD = (1 << 10) - 1
WAS_ATOMIC = 1 << 10
READER = 11  # where the lane that read is kept


@native
def check(launch: LaunchRecord, floor: int, entry: int, warp: int, lane: int, kind: int, strong: int) -> int:
    """Judge one access and record it. Returns the thread that it races with, or -1.

    What happened before the time ``floor`` cannot race: earlier launches; in shared memory, earlier blocks.
    """
    thread = warp * 32 + lane
    write, reads = load64(entry), load64(entry + 8)
    writer = write & THREAD
    atomic = kind == ATOMIC or strong
    allowed = write & WAS_ATOMIC and (atomic or kind == LOAD)
    if write and not allowed and unordered(launch, floor, warp, writer, write >> 32, thread):
        return writer
    if kind == LOAD:
        if not strong:
            record_reader(launch, entry, write, reads, warp, lane)
        return -1
    if not atomic:
        reader = unordered_reader(launch, floor, write, reads, warp, lane)
        if reader >= 0:
            return reader
    store64(entry, launch.time << 32 | (WAS_ATOMIC if atomic else 0) | thread)
    store64(entry + 8, 0)
    return -1


@native
def unordered(launch: LaunchRecord, floor: int, warp: int, other: int, time: int, thread: int) -> int:
    """Whether what thread ``other`` did at ``time`` may happen at the same time as what ``thread`` does now."""
    if time < floor:
        return False
    if time < launch.block_began:
        return not published(launch, time)
    return other != thread and time >= known(launch, warp, other >> 5)


@native
def published(launch: LaunchRecord, time: int) -> int:
    """Whether this block has seen what an earlier block did at ``time``.

    It has if that block issued a fence afterwards and this one has used an atomic since it began: the pattern of
    "the last block to finish".
    """
    if not launch.acquired:
        return False
    number = launch.block_number
    while load64(launch.began + 8 * number) > time:
        number -= 1
    return load64(launch.published + 8 * number) > time


@native
def known(launch: LaunchRecord, warp: int, other: int) -> int:
    """The time up to which a warp knows what another one did."""
    return load64(launch.known + 8 * (WARPS * warp + other))


@native
def record_reader(launch: LaunchRecord, entry: int, write: int, reads: int, warp: int, lane: int) -> None:
    """Add a reader to the history. Readers that happen before this one are forgotten."""
    time, warps, me = reads >> 32, reads & 0xFFFFFFFF, 1 << warp
    reader = lane
    if time < launch.block_began or (time < launch.time and knows(launch, warp, warps, time)):
        warps = 0
    elif warps != me or write >> READER & 63 != lane:
        reader = SEVERAL
    store64(entry, write & ~(63 << READER) | reader << READER)
    store64(entry + 8, launch.time << 32 | warps | me)


@native
def knows(launch: LaunchRecord, warp: int, warps: int, time: int) -> int:
    """Whether a warp knows what all of ``warps`` did at ``time``."""
    other = 0
    while warps:
        if warps & 1 and known(launch, warp, other) <= time:
            return False
        warps >>= 1
        other += 1
    return True


@native
def unordered_reader(launch: LaunchRecord, floor: int, write: int, reads: int, warp: int, lane: int) -> int:
    """A thread that read what is written now, without the two being ordered; -1 if there is none."""
    time, warps, reader = reads >> 32, reads & 0xFFFFFFFF, write >> READER & 63
    if warps == 0 or time < floor:
        return -1
    if time < launch.block_began:
        return -1 if published(launch, time) else 0
    other = 0
    while warps:
        if warps & 1 and known(launch, warp, other) <= time and (other != warp or reader != lane):
            return other * 32 + (reader if reader < SEVERAL else 0)
        warps >>= 1
        other += 1
    return -1
