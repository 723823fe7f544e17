"""Data races between threads, by happens-before.

Two accesses of different threads race if one of them writes, neither happens before the other (``happens_before``), and
they are not an atomic operation and another one or a read: a loop around compare-and-swap begins with a plain read.
In shared memory a plain read races with an atomic operation of another warp all the same, unless it is such a guess: a
thread that read there by this instruction went on to an atomic operation on the place, with no barrier between.

The history of a granule of memory is an entry of four words. The last write: its time in the upper half, its trace in
the lower one. The reads since: the time of the last one, or of an earlier one whose warp has gone on since, and the set
of warps that read. The traces of two readers, of two warps where there are two. Of the block that read before the last
one did, if the two are not ordered, a read: its time and its trace.
``history`` says what a trace is, and what is kept behind an atomic write.

``released[w]`` is what warp w knew at its last fence. Who finds a value that it wrote strongly then, has ``seen`` that
much, and knows it after a fence of its own; an atomic operation knows it at once.

Volatile orders nothing: such a store is strong behind a fence alone, else only for those that poll it in a loop; and a
volatile load that is no poll is as weak as any.
"""

from __future__ import annotations

from warpcheck.native import apart, load64, native, store64
from warpcheck.runtime.happens_before import ROW, WARPS, is_own, known, knows, unordered, went_on
from warpcheck.runtime.history import (
    ATOMIC,
    ENTRY,
    LOAD,
    LOW,
    NOBODY,
    SITE,
    STRONG,
    THREAD,
    UNORDERED,
    VOLATILE,
    WAS_ATOMIC,
    WAS_VOLATILE,
    accuse,
    is_guess,
    keep_shadowed,
    races_behind_atomic,
    races_with_write,
    shadowed,
)
from warpcheck.runtime.records import CtaRecord, LaunchRecord, SampleRecord, WarpRecord

__all__ = ["check"]


@native
def check(
    launch: LaunchRecord,
    cta: CtaRecord,
    floor: int,
    history: int,
    place: int,
    warp: int,
    lane: int,
    number: int,
    kind: int,
    strong: int,
) -> int:
    """Judge one access, by the instruction of this number, and record it. Whether it races: then with launch.other.

    ``history`` is that of a buffer, and ``place`` the number of the granule that is accessed.
    What happened before the time ``floor`` cannot race: earlier launches; in shared memory, earlier blocks.
    """
    thread, entry = warp * 32 + lane, history + ENTRY * place
    write, reads = load64(entry), load64(entry + 8)
    is_strong = strong == STRONG or (strong == VOLATILE and kind != LOAD and is_fenced(cta, warp))
    atomic = kind == ATOMIC or strong == UNORDERED or is_strong
    if write & WAS_ATOMIC:
        if races_behind_atomic(launch, cta, floor, history, place, thread, number, kind, strong, atomic):
            return 1
    elif write and races_with_write(launch, cta, floor, warp, thread, write):
        return 1
    if kind == ATOMIC:
        excuse(launch, cta, load64(entry + 16), reads >> 32, thread)
        is_recent = reads >> 32 >= floor and floor == cta.block_began
        if is_recent and updates_what_was_read(launch, cta, floor, entry, warp, thread):
            return 1
    trace = number + 1 << SITE | thread
    if atomic:
        trace |= WAS_ATOMIC
    elif strong == VOLATILE:
        trace |= WAS_ATOMIC | WAS_VOLATILE
    if kind == LOAD:
        if strong != STRONG and strong != UNORDERED:
            record_reader(launch, cta, floor, entry, reads, warp, trace)
        return 0
    if not atomic and reads and unordered_reader(launch, cta, floor, entry, warp, thread):
        return 1
    if trace & WAS_ATOMIC:
        keep_shadowed(shadowed(history, place), write, warp)
    store64(entry, launch.time << 32 | trace)
    store64(entry + 8, 0)
    store64(entry + 24, 0)
    return 0


@apart
def updates_what_was_read(launch: LaunchRecord, cta: CtaRecord, floor: int, entry: int, warp: int, thread: int) -> int:
    """Whether an atomic operation in shared memory races with a plain read of another warp that was no guess."""
    time, readers = load64(entry + 8) >> 32, load64(entry + 16)
    for half in range(2):
        reader = readers >> 32 * half & LOW
        is_other = reader and (reader & THREAD) >> 5 != warp and is_own(launch, cta, time)
        judged = is_other and not is_guess(launch, (reader >> SITE) - 1)
        if judged and unordered(launch, cta, floor, warp, reader & THREAD, time, thread):
            return accuse(launch, reader, time)
    return 0


@native
def excuse(launch: LaunchRecord, cta: CtaRecord, readers: int, time: int, thread: int) -> None:
    """The plain read with which ``thread`` has begun what ends in an atomic operation was a guess."""
    if time < cta.met:
        return
    for half in range(2):
        reader = readers >> 32 * half & LOW
        if reader and reader & THREAD == thread:
            site = (reader >> SITE) - 1
            sample = SampleRecord(launch.samples + site * SampleRecord.size)
            sample.guesses = 1
            if cta.suspect_site == site or (cta.suspect_other & LOW) >> SITE == site + 1:
                cta.suspect_address = 0


@native
def is_fenced(cta: CtaRecord, warp: int) -> int:
    """Whether a warp has issued a fence since the last barrier of its block."""
    return load64(cta.released + 8 * (WARPS * warp + warp)) > cta.met


@native
def record_reader(
    launch: LaunchRecord, cta: CtaRecord, floor: int, entry: int, reads: int, warp: int, trace: int
) -> None:
    """Add a reader to the history. Readers that happen before this one are forgotten.

    So are those that have gone on where this one has, too, since the date of their reads: its own is later.
    """
    time, warps = reads >> 32, reads & LOW
    own = is_own(launch, cta, time)
    if reads and not own:
        last = load64(entry + 16) & LOW
        if unordered(launch, cta, floor, warp, last & THREAD, time, trace & THREAD):
            store64(entry + 24, time << 32 | last)
    if not own or (time < launch.time and are_past(cta, warp, warps, time)):
        warps = 0
        time = launch.time
        store64(entry + 16, trace)
    else:
        if time < launch.time and not went_on(cta, warps, time) and not have_committed(cta, warps, time):
            time = launch.time
        readers = load64(entry + 16)
        last = readers & LOW
        if last >> 5 & 31 != warp or (readers >> 32 == 0 and last & THREAD != trace & THREAD):
            store64(entry + 16, last << 32 | trace)
    store64(entry + 8, time << 32 | warps | 1 << warp)


@native
def have_committed(cta: CtaRecord, warps: int, time: int) -> int:
    """Whether one of ``warps`` has committed its wgmma since ``time``: whoever waits for them knows it until then."""
    number = 0
    while warps:
        warp = WarpRecord(cta.warps + number * cta.warp_stride)
        if warps & 1 and warp.wgmma_time > time:
            return True
        warps >>= 1
        number += 1
    return False


@native
def are_past(cta: CtaRecord, warp: int, warps: int, time: int) -> int:
    """Whether reads of ``warps`` at ``time`` need not be kept beside one of a warp now."""
    own = load64(cta.released + (ROW + 8) * warp)
    return (own > time and went_on(cta, warps, time)) or knows(cta, warp, warps, time)


@apart
def unordered_reader(launch: LaunchRecord, cta: CtaRecord, floor: int, entry: int, warp: int, thread: int) -> int:
    """Whether a thread read what ``thread`` writes now, without the two being ordered."""
    reads, readers, elder = load64(entry + 8), load64(entry + 16), load64(entry + 24)
    time, warps, last, before = reads >> 32, reads & LOW, readers & LOW, readers >> 32
    if elder and unordered(launch, cta, floor, warp, elder & THREAD, elder >> 32, thread):
        return accuse(launch, elder & LOW, elder >> 32)
    if launch.converges and warps == 1 << warp and read_together(last, before, thread) and is_own(launch, cta, time):
        return 0
    if unordered(launch, cta, floor, warp, last & THREAD, time, thread):
        return accuse(launch, last, time)
    if time < floor or not is_own(launch, cta, time):
        return 0
    if before and unordered(launch, cta, floor, warp, before & THREAD, time, thread):
        return accuse(launch, before, time)
    other = 0
    while warps:
        if warps & 1 and known(cta, warp, other) <= time and (other != warp or before):
            return accuse(launch, NOBODY, time)
        warps >>= 1
        other += 1
    return 0


@native
def read_together(last: int, before: int, thread: int) -> int:
    """Whether two lanes of a warp, one of them this thread, have read by one instruction.

    Where lanes converge, the hardware loads for all of them at once, and no compiler puts a thread's store before its
    own load from there: what the thread writes, the others have read. So it is with a scalar of Triton, which all lanes
    load and one stores. Of CUDA C++ nobody promises that a warp's lanes are together.
    """
    return last >> SITE == before >> SITE and (last & THREAD == thread or before & THREAD == thread)
