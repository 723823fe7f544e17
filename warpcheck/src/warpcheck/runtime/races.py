"""Find data races between threads, by happens-before.

Two accesses of different threads race if at least one of them writes, neither happens before the other (see
``happens_before``), and they are not both atomic. Two exceptions:

- An atomic operation does not race with a plain read of global memory: a loop around compare-and-swap begins with one.
- In shared memory it does race with a plain read of another warp, unless that read is speculative: a thread that read
  by the same instruction went on to an atomic operation on the same granule, with no barrier in between.

As in FastTrack (Flanagan and Freund, PLDI 2009), the history of a granule holds epochs, a time and an access id each,
in place of whole vector clocks. An entry has four words; ``access_history`` describes the access id in the lower
halves.

             63          32 31           0
    entry      write time  | write id        the last write, 0 if there was none
    entry + 8   read time  | reader warps    the reads since then: one time for all, one bit for each warp
    entry + 16 earlier id  | last id         two of the readers, of two warps if there are two
    entry + 24   read time | reader id       a reader of another block, if it is not ordered before the last reader

Two readers suffice, because a later write races with at least one of two different threads if it races at all. Their
common time is that of the last read, or of an earlier read whose warp has released it since: a release covers what was
read before, so such a read must not be dated later.

``vc_released[w]`` is the vector clock of warp w at its last fence. A warp that finds a value that w wrote strongly
after that fence has observed that clock (``vc_observed``), and acquires it by a fence of its own; an atomic operation
acquires it at once.

The scope of an atomic operation, or of a strong access, may be the block. With an access by another block, it races
like a plain access does.

Volatile accesses order nothing by themselves: a volatile store counts as strong after a fence, or for threads that poll
it in a loop. A volatile load outside of a polling loop is as weak as a plain load.
"""

from __future__ import annotations

from warpcheck.native import load64, native, noinline, store64
from warpcheck.runtime.access_history import (
    ATOMIC,
    ENTRY_BYTES,
    LOAD,
    LOW_WORD,
    UNKNOWN_ACCESS,
    UNORDERED,
    VOLATILE,
    WAS_ATOMIC,
    WAS_VOLATILE,
    Granule,
    access_id_of,
    id_of,
    is_speculative_read,
    is_strong,
    races_behind_atomic,
    races_with_write,
    replaced_writes,
    save_replaced_write,
    set_conflict,
    site_of,
    thread_of,
    time_of,
    warp_of,
)
from warpcheck.runtime.happens_before import (
    ROW_BYTES,
    WARPS,
    any_released_since,
    is_by_own_block,
    is_unordered,
    known_time,
    knows_all,
)
from warpcheck.runtime.records import CtaRecord, LaunchRecord, SampleRecord, WarpRecord

__all__ = ["check_race"]


@native
def check_race(
    launch: LaunchRecord,
    cta: CtaRecord,
    granule: Granule,
    warp: int,
    lane: int,
    site: int,
    kind: int,
    ordering: int,
) -> int:
    """Check one access of a thread by the instruction ``site``, and record it in the history.

    Args:
        granule: The granule that is accessed.
        kind: LOAD, STORE or ATOMIC.
        ordering: 0 for a plain access, STRONG, BLOCK_STRONG, VOLATILE or UNORDERED.

    Returns:
        Whether the access races; the other access is then in ``launch.conflict_id`` and ``launch.conflict_time``.
    """
    thread = warp * 32 + lane
    floor = granule.floor
    entry = granule.history + ENTRY_BYTES * granule.number
    write_word = load64(entry)
    reader_word = load64(entry + 8)
    is_fenced_store = ordering == VOLATILE and kind != LOAD and is_fenced(cta, warp)
    atomic = kind == ATOMIC or ordering == UNORDERED or is_strong(ordering) or is_fenced_store
    # This access against the last write. A write that was atomic or strong may have replaced others.
    if write_word & WAS_ATOMIC:
        if races_behind_atomic(launch, cta, granule, thread, site, kind, ordering, atomic):
            return 1
    elif write_word and races_with_write(launch, cta, floor, warp, thread, write_word):
        return 1
    # An atomic operation against the plain reads since: only in shared memory, and not its own guess.
    if kind == ATOMIC:
        forgive_cas_guess(launch, cta, load64(entry + 16), time_of(reader_word), thread)
        is_recent = time_of(reader_word) >= floor and floor == cta.block_began
        if is_recent and races_with_plain_read(launch, cta, floor, entry, warp, thread):
            return 1
    access_id = access_id_of(site, thread)
    # A volatile store is not atomic, but it is recorded like one: it may be the flag of a polling loop.
    if atomic:
        access_id |= WAS_ATOMIC
    elif ordering == VOLATILE:
        access_id |= WAS_ATOMIC | WAS_VOLATILE
    if kind == LOAD:
        if not is_strong(ordering) and ordering != UNORDERED:
            record_reader(launch, cta, floor, entry, reader_word, warp, access_id)
        return 0
    # A plain write against the reads since the last write.
    if not atomic and reader_word and races_with_reader(launch, cta, floor, entry, warp, thread):
        return 1
    if access_id & WAS_ATOMIC:
        save_replaced_write(replaced_writes(granule.history, granule.number), write_word, warp)
    # The write begins a new epoch: a later access that is ordered behind it is ordered behind the reads before it, too.
    # The ids at entry + 16 stay; they mean nothing while the reader word is 0.
    store64(entry, launch.time << 32 | access_id)
    store64(entry + 8, 0)
    store64(entry + 24, 0)
    return 0


@noinline
def races_with_plain_read(launch: LaunchRecord, cta: CtaRecord, floor: int, entry: int, warp: int, thread: int) -> int:
    """Return whether an atomic operation in shared memory races with a plain read of another warp that was not
    speculative.
    """
    time = load64(entry + 8) >> 32
    readers = load64(entry + 16)
    for slot in range(2):
        reader = readers >> 32 * slot & LOW_WORD
        is_by_other_warp = reader and warp_of(reader) != warp and is_by_own_block(launch, cta, time)
        is_plain_read = is_by_other_warp and not is_speculative_read(launch, site_of(reader))
        if is_plain_read and is_unordered(launch, cta, floor, warp, thread_of(reader), time, thread):
            return set_conflict(launch, reader, time)
    return 0


@native
def forgive_cas_guess(launch: LaunchRecord, cta: CtaRecord, reader_ids: int, time: int, thread: int) -> None:
    """Mark the plain read that ``thread`` made before this atomic operation as the guess of a compare-and-swap loop.

    The guess may be stale: the compare-and-swap checks it. A fault that was deferred for the same site is dropped.
    """
    # The guess and its compare-and-swap are in one iteration of a loop, without a barrier of the block in between.
    if time < cta.last_barrier_time:
        return
    for slot in range(2):
        reader = reader_ids >> 32 * slot & LOW_WORD
        if reader and thread_of(reader) == thread:
            site = site_of(reader)
            sample = SampleRecord(launch.samples + site * SampleRecord.size)
            sample.is_speculative = 1
            if cta.deferred_site == site or site_of(cta.deferred_conflict_id) == site:
                cta.deferred_address = 0


@native
def is_fenced(cta: CtaRecord, warp: int) -> int:
    """Return whether a warp has issued a fence since the last barrier of its block."""
    return load64(cta.vc_released + 8 * (WARPS * warp + warp)) > cta.last_barrier_time


@native
def record_reader(
    launch: LaunchRecord, cta: CtaRecord, floor: int, entry: int, reader_word: int, warp: int, access_id: int
) -> None:
    """Add a reader to the history, and drop readers that are ordered before it.

    Readers whose warp has released since their read are dropped too if this warp has released since: its own time is
    later.
    """
    read_time = time_of(reader_word)
    reader_warps = reader_word & LOW_WORD
    is_own_read = is_by_own_block(launch, cta, read_time)
    # The entry has one time for all readers, which dates those of one block. A read of another block that is not
    # ordered before this one moves to a word of its own.
    if reader_word and not is_own_read:
        last_reader = load64(entry + 16) & LOW_WORD
        if is_unordered(launch, cta, floor, warp, thread_of(last_reader), read_time, thread_of(access_id)):
            store64(entry + 24, read_time << 32 | last_reader)
    if not is_own_read or (read_time < launch.time and are_superseded(cta, warp, reader_warps, read_time)):
        reader_warps = 0
        read_time = launch.time
        store64(entry + 16, access_id)
    else:
        if (
            read_time < launch.time
            and not any_released_since(cta, reader_warps, read_time)
            and not any_committed_wgmma(cta, reader_warps, read_time)
        ):
            read_time = launch.time
        # Keep the last reader as the earlier one if that adds a warp, or a second thread of the only warp.
        reader_ids = load64(entry + 16)
        last_reader = reader_ids & LOW_WORD
        if last_reader >> 5 & 31 != warp or (reader_ids >> 32 == 0 and thread_of(last_reader) != thread_of(access_id)):
            store64(entry + 16, last_reader << 32 | access_id)
    store64(entry + 8, read_time << 32 | reader_warps | 1 << warp)


@native
def any_committed_wgmma(cta: CtaRecord, warp_mask: int, time: int) -> int:
    """Return whether one of these warps has committed wgmma since ``time``: a wait for the group covers reads until
    then.
    """
    warp_index = 0
    while warp_mask:
        warp = WarpRecord(cta.warps + warp_index * cta.warp_stride)
        if warp_mask & 1 and warp.wgmma_time > time:
            return True
        warp_mask >>= 1
        warp_index += 1
    return False


@native
def are_superseded(cta: CtaRecord, warp: int, warp_mask: int, time: int) -> int:
    """Return whether reads of ``warp_mask`` at ``time`` need not be kept beside a read of ``warp`` now."""
    own_release = load64(cta.vc_released + (ROW_BYTES + 8) * warp)
    return (own_release > time and any_released_since(cta, warp_mask, time)) or knows_all(cta, warp, warp_mask, time)


@noinline
def races_with_reader(launch: LaunchRecord, cta: CtaRecord, floor: int, entry: int, warp: int, thread: int) -> int:
    """Return whether a write of ``thread`` is unordered with a read in the history."""
    reader_word = load64(entry + 8)
    reader_ids = load64(entry + 16)
    other_block_reader = load64(entry + 24)
    time = time_of(reader_word)
    reader_warps = reader_word & LOW_WORD
    last_reader = reader_ids & LOW_WORD
    earlier_reader = reader_ids >> 32
    if other_block_reader and is_unordered(
        launch, cta, floor, warp, thread_of(other_block_reader), time_of(other_block_reader), thread
    ):
        return set_conflict(launch, id_of(other_block_reader), time_of(other_block_reader))
    # Where lanes converge, a warp's reads by one instruction precede the store of one of its lanes.
    if (
        launch.converges
        and reader_warps == 1 << warp
        and have_read_together(last_reader, earlier_reader, thread)
        and is_by_own_block(launch, cta, time)
    ):
        return 0
    if is_unordered(launch, cta, floor, warp, thread_of(last_reader), time, thread):
        return set_conflict(launch, last_reader, time)
    if time < floor or not is_by_own_block(launch, cta, time):
        return 0
    if earlier_reader and is_unordered(launch, cta, floor, warp, thread_of(earlier_reader), time, thread):
        return set_conflict(launch, earlier_reader, time)
    # Of the other readers only the warps are known: a warp that is not ordered before this one races.
    reader_warp = 0
    while reader_warps:
        if reader_warps & 1 and known_time(cta, warp, reader_warp) <= time and (reader_warp != warp or earlier_reader):
            return set_conflict(launch, UNKNOWN_ACCESS, time)
        reader_warps >>= 1
        reader_warp += 1
    return 0


@native
def have_read_together(last_reader: int, earlier_reader: int, thread: int) -> int:
    """Return whether two lanes of a warp, one of them this thread, have read by one instruction.

    Where lanes converge, the hardware loads for all of them at once, and no compiler moves a thread's store before its
    own load from the same address: what the thread writes now, the other lanes have read before. So it is with a scalar
    in Triton, which all lanes load and one lane stores. CUDA C++ does not promise that the lanes of a warp are
    converged.
    """
    return site_of(last_reader) == site_of(earlier_reader) and (
        thread_of(last_reader) == thread or thread_of(earlier_reader) == thread
    )
