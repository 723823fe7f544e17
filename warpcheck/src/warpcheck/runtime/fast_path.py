"""Check and record the plain accesses whose outcome a few comparisons decide, which are nearly all.

``races.check_race`` decides every access; what is recorded here, it would record in the same way. Its code is large,
because an access may meet atomic operations, other blocks and readers of several times. If the code of all that were on
the path of every lane, most of its instructions would move values between registers and the stack. So these functions
look whether an access is one of the common cases, and leave the history as it is if not.

``record_common_reads`` and ``record_common_writes`` do so for the lanes of a warp. They are not inlined in the check of
an access for the same reason: their loops need most registers of the processor.
"""

from __future__ import annotations

from typing import NamedTuple

from warpcheck.native import load64, lowest_bit, native, noinline, store64
from warpcheck.runtime.access_history import (
    ENTRY_BYTES,
    LOW_WORD,
    THREAD_MASK,
    WAS_ATOMIC,
    access_id_of,
    time_of,
    warp_of,
)
from warpcheck.runtime.happens_before import ROW_BYTES, is_clock_past
from warpcheck.runtime.records import WARP, CtaRecord, LaunchRecord, WarpRecord, field_offset

__all__ = [
    "EntryRange",
    "Instant",
    "instant_of",
    "record_common_read",
    "record_common_reads",
    "record_common_write",
    "record_common_writes",
]

ADDRESSES = field_offset(WARP, "addresses")
WARP_MASK = THREAD_MASK & -32


class Instant(NamedTuple):
    """What orders the accesses of a warp at present. Nothing of it changes while one access is checked.

    Attributes:
        time: The time of the launch.
        turn_began: When the turn of the block began: from then on, all accesses are its own.
        barrier_time: The time of the last barrier of the whole block: all accesses of the turn before it happen before
            those of any warp now.
        launch: The address of the record of the launch.
        cta: The address of the record of the block.
        clock: The address of the vector clock of the warp, for the warps of its block.
        warp_bit: The bit of the warp among the reader warps of an entry.
        first_access_id: The access id of lane 0, by the instruction that accesses memory.
    """

    time: int
    turn_began: int
    barrier_time: int
    launch: int
    cta: int
    clock: int
    warp_bit: int
    first_access_id: int


@native
def instant_of(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, site: int) -> Instant:
    """Return what orders the access of a warp by the instruction ``site``."""
    return Instant(
        time=launch.time,
        turn_began=cta.turn_began,
        barrier_time=cta.last_barrier_time,
        launch=launch.address,
        cta=cta.address,
        clock=cta.vector_clock + ROW_BYTES * warp.index,
        warp_bit=1 << warp.index,
        first_access_id=access_id_of(site, 32 * warp.index),
    )


class EntryRange(NamedTuple):
    """The entries of the history that an access of some bytes has.

    Attributes:
        history: The address of the history.
        start: The address of the first byte that has an entry.
        granule: The binary logarithm of the bytes of an entry.
        size: The bytes of an access of one lane, a power of two. Its address is a multiple of it.
        floor: Accesses before this time cannot race.
    """

    history: int
    start: int
    granule: int
    size: int
    floor: int


@native
def have_one_entry(entries: EntryRange) -> int:
    """Return whether each access has one entry. An access to two granules of its size is possible, where the bytes
    begin in the middle of a granule.
    """
    return entries.size >> entries.granule <= 1 and entries.start & ((1 << entries.granule) - 1) == 0


@native
def entry_at(entries: EntryRange, address: int) -> int:
    """Return the address of the entry of a byte."""
    return entries.history + (address - entries.start >> entries.granule) * ENTRY_BYTES


@noinline
def record_common_reads(
    launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, site: int, lanes: int, entries: EntryRange
) -> int:
    """Record the plain reads of lanes, up to the first that `record_common_read` does not record. Return the lanes that
    are left.
    """
    instant = instant_of(launch, cta, warp, site)
    addresses = warp.address + ADDRESSES
    # The case of nearly all kernels has a loop without the inner one.
    if have_one_entry(entries):
        while lanes:
            lane = lowest_bit(lanes)
            entry = entry_at(entries, load64(addresses + 8 * lane))
            if not record_common_read(instant, entries.floor, entry, lane):
                return lanes
            lanes &= lanes - 1
        return 0
    while lanes:
        lane = lowest_bit(lanes)
        address = load64(addresses + 8 * lane)
        last = entry_at(entries, address + entries.size - 1)
        for entry in range(entry_at(entries, address), last + 1, ENTRY_BYTES):
            if not record_common_read(instant, entries.floor, entry, lane):
                return lanes
        lanes &= lanes - 1
    return 0


@noinline
def record_common_writes(
    launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, site: int, lanes: int, entries: EntryRange
) -> int:
    """Record the plain writes of lanes, up to the first that `record_common_write` does not record. Return the lanes
    that are left.
    """
    instant = instant_of(launch, cta, warp, site)
    addresses = warp.address + ADDRESSES
    if have_one_entry(entries):
        while lanes:
            lane = lowest_bit(lanes)
            entry = entry_at(entries, load64(addresses + 8 * lane))
            if not record_common_write(instant, entries.floor, entry, lane):
                return lanes
            lanes &= lanes - 1
        return 0
    while lanes:
        lane = lowest_bit(lanes)
        address = load64(addresses + 8 * lane)
        last = entry_at(entries, address + entries.size - 1)
        for entry in range(entry_at(entries, address), last + 1, ENTRY_BYTES):
            if not record_common_write(instant, entries.floor, entry, lane):
                return lanes
        lanes &= lanes - 1
    return 0


@native
def record_common_read(instant: Instant, floor: int, entry: int, lane: int) -> int:
    """Record a plain read in the history, if it races with nothing and is one of the common cases.

    These are the first read since the launch or the block began, the first one behind a barrier of the block, the first
    one by this block of what another block has read, and a further read at the time of the last one.

    Args:
        floor: Accesses before this time cannot race.
        entry: The address of the entry of the history.

    Returns:
        Whether it was recorded. A read that is recorded already is recorded again without a change.
    """
    access_id = instant.first_access_id + lane
    if not is_clearly_ordered(instant, floor, load64(entry), access_id):
        return 0
    # The steps of `races.record_reader` in these cases.
    reader_word = load64(entry + 8)
    read_time = time_of(reader_word)
    if read_time == instant.time:
        reader_ids = load64(entry + 16)
        if not is_same_thread(reader_ids, access_id) and (
            reader_ids >> 32 == 0 or not is_same_warp(reader_ids, access_id)
        ):
            # An entry keeps two readers, the latest in the lower half: one of them is not the thread that writes next.
            store64(entry + 16, reader_ids << 32 | access_id)
        store64(entry + 8, reader_word | instant.warp_bit)
        return 1
    # In all other cases, the reads so far are forgotten: they cannot race any more, or this warp is ordered behind
    # them, or the entry keeps one of them elsewhere.
    if read_time >= floor and not (instant.turn_began <= read_time and read_time < instant.barrier_time):
        if not is_by_unordered_block(instant, read_time):
            return 0
        store64(entry + 24, read_time << 32 | load64(entry + 16) & LOW_WORD)
    store64(entry + 16, access_id)
    store64(entry + 8, instant.time << 32 | instant.warp_bit)
    return 1


@native
def is_by_unordered_block(instant: Instant, time: int) -> int:
    """Return whether an access of this launch is clearly of another block that this one is not ordered behind.

    These are the accesses before the block began, where no plane of the vector clock orders those of a cluster, and
    where the block has not acquired since what other blocks published. See `happens_before.is_unordered`.
    """
    launch = LaunchRecord(instant.launch)
    cta = CtaRecord(instant.cta)
    return (
        time < cta.block_began and time >= launch.launch_began and cta.acquired_at <= time and launch.cluster_size == 1
    )


@native
def record_common_write(instant: Instant, floor: int, entry: int, lane: int) -> int:
    """Record a plain write in the history, if the last write and the reads since then clearly happen before it.

    Args and result are those of `record_common_read`.
    """
    access_id = instant.first_access_id + lane
    if not is_clearly_ordered(instant, floor, load64(entry), access_id):
        return 0
    if not are_readers_clearly_ordered(instant, floor, entry, access_id):
        return 0
    store64(entry, instant.time << 32 | access_id)
    # The readers happen before this write. A later access that is ordered behind the write is ordered behind them, too,
    # so they can be forgotten (as in FastTrack, Flanagan and Freund 2009).
    store64(entry + 8, 0)
    store64(entry + 24, 0)
    return 1


@native
def is_clearly_ordered(instant: Instant, floor: int, write_word: int, access_id: int) -> int:
    """Return whether the last write of a granule happens before an access, for reasons that are quick to find: it is of
    an earlier launch or block, of the same thread, or of a warp that this one is ordered behind.
    """
    if time_of(write_word) < floor:
        return 1
    # Whether this access races with an atomic one depends on the ordering and the scope of both: see `races`.
    if write_word & WAS_ATOMIC:
        return 0
    # The write may be of another block, of which the clock of this warp says nothing.
    if time_of(write_word) < instant.turn_began:
        return 0
    if time_of(write_word) < instant.barrier_time:
        return 1
    return is_same_thread(write_word, access_id) or load64(instant.clock + 8 * warp_of(write_word)) > time_of(
        write_word
    )


@native
def are_readers_clearly_ordered(instant: Instant, floor: int, entry: int, access_id: int) -> int:
    """Return whether the readers of a granule happen before an access, for reasons that are quick to find: they are of
    an earlier launch or block, the only one is this thread, or this warp is ordered behind all of them.
    """
    reader_word = load64(entry + 8)
    reader_ids = load64(entry + 16)
    if time_of(load64(entry + 24)) >= floor:
        return 0
    if time_of(reader_word) < floor:
        return 1
    if time_of(reader_word) < instant.turn_began:
        return 0
    if time_of(reader_word) < instant.barrier_time:
        return 1
    reader_warps = reader_word & LOW_WORD
    if reader_warps == instant.warp_bit and reader_ids >> 32 == 0 and is_same_thread(reader_ids, access_id):
        return 1
    return is_clock_past(instant.clock, reader_warps, time_of(reader_word))


@native
def is_same_thread(word: int, access_id: int) -> int:
    """Return whether an access id is of the thread of another one, or of a word that has one in its lower half."""
    return (word ^ access_id) & THREAD_MASK == 0


@native
def is_same_warp(word: int, access_id: int) -> int:
    """Return whether an access id is of the warp of another one, or of a word that has one in its lower half."""
    return (word ^ access_id) & WARP_MASK == 0
