"""Data races between threads, by happens-before.

Time counts synchronisations. ``known[w][v]`` is the time up to which warp w knows what warp v did: accesses of v
stamped earlier happen before whatever w does now. A barrier makes its warps know each other, ``__syncwarp`` makes a
warp know itself. Two accesses of different threads race if one of them writes, neither happens before the other, and
they are not an atomic operation and another one or a read: a loop around compare-and-swap begins with a plain read.
In shared memory a plain read races with an atomic operation of another warp all the same, unless it is such a guess: a
thread that read there by this instruction went on to an atomic operation on the place, with no barrier between.

The history of a granule of memory is an entry of three words. The last write: its time in the upper half, its trace in
the lower one. The reads since: the time of the last one, or of an earlier one whose warp has gone on since, and the set
of warps that read. The traces of two readers, of two warps where there are two.

Of another block of its cluster a warp knows as much as its barriers have told it; see ``clusters`` and ``mbarriers``.
A trace is a thread, a bit for a strong write, one for a volatile write, and the instruction's number.

``released[w]`` is what warp w knew at its last fence. Who finds a value that it wrote strongly then, has ``seen`` that
much, and knows it after a fence of its own; an atomic operation knows it at once.

Volatile orders nothing: such a store is strong behind a fence alone, else only for those that poll it in a loop; and a
volatile load that is no poll is as weak as any.
"""

from __future__ import annotations

from kernelpath.simt.layout import Access
from kernelpath.simt.native import load64, native, store64
from kernelpath.simt.run.records import CtaRecord, LaunchRecord, SampleRecord

__all__ = [
    "ASYNCHRONOUS",
    "ENTRY",
    "LOW",
    "NOBODY",
    "PLANE",
    "ROW",
    "SITE",
    "STRONG",
    "THREAD",
    "UNORDERED",
    "VOLATILE",
    "WAS_ATOMIC",
    "check",
    "raise_to",
    "unordered",
]

LOAD, ATOMIC = int(Access.LOAD), int(Access.ATOMIC)
STRONG, VOLATILE, UNORDERED = 1, 2, 3  # how strong an access may be, beside not at all; the last orders nothing itself
WARPS = 32
ENTRY = 24  # bytes of an entry of the history
LOW = 0xFFFFFFFF
THREAD = (1 << 10) - 1
ROW, PLANE = 8 * WARPS, 8 * WARPS * WARPS  # bytes of what one warp knows of a block, and of what all warps know
WAS_ATOMIC = 1 << 10
WAS_VOLATILE = 1 << 11
ASYNCHRONOUS = WAS_VOLATILE  # without WAS_ATOMIC: a bulk copy wrote it, for this thread
SITE = 12  # where the number of the instruction begins, counted from 1: a trace is never 0
NOBODY = -1  # in place of a trace that was not kept


@native
def check(
    launch: LaunchRecord,
    cta: CtaRecord,
    floor: int,
    entry: int,
    warp: int,
    lane: int,
    number: int,
    kind: int,
    strong: int,
) -> int:
    """Judge one access, by the instruction of this number, and record it. Whether it races: then with launch.other.

    What happened before the time ``floor`` cannot race: earlier launches; in shared memory, earlier blocks.
    """
    thread = warp * 32 + lane
    write, reads = load64(entry), load64(entry + 8)
    is_strong = strong == STRONG or (strong == VOLATILE and kind != LOAD and is_fenced(cta, warp))
    atomic = kind == ATOMIC or strong == UNORDERED or is_strong
    allowed = write & WAS_ATOMIC and (atomic or (kind == LOAD and not write & WAS_VOLATILE))
    hands_on = strong != UNORDERED and (strong or kind == ATOMIC)
    if allowed and hands_on and not write & WAS_VOLATILE and is_own(launch, cta, write >> 32):
        observe(cta, warp, (write & THREAD) >> 5, kind == ATOMIC)
    plain = allowed and not atomic and not strong and floor == cta.block_began and (write & THREAD) >> 5 != warp
    judged = write and (not allowed or (plain and not is_guess(launch, number)))
    if judged and unordered(launch, cta, floor, warp, write & THREAD, write >> 32, thread):
        return accuse(launch, write & LOW, write >> 32)
    if kind == ATOMIC:
        excuse(launch, cta, load64(entry + 16), reads >> 32, thread)
    trace = number + 1 << SITE | thread
    if atomic:
        trace |= WAS_ATOMIC
    elif strong == VOLATILE:
        trace |= WAS_ATOMIC | WAS_VOLATILE
    if kind == LOAD:
        if strong != STRONG and strong != UNORDERED:
            record_reader(launch, cta, entry, reads, warp, trace)
        return 0
    if not atomic and reads and unordered_reader(launch, cta, floor, reads, load64(entry + 16), warp, thread):
        return 1
    store64(entry, launch.time << 32 | trace)
    store64(entry + 8, 0)
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
            if cta.suspect_site == site:
                cta.suspect_address = 0


@native
def is_guess(launch: LaunchRecord, number: int) -> int:
    """Whether the plain reads of an instruction are excused."""
    sample = SampleRecord(launch.samples + number * SampleRecord.size)
    return sample.guesses


@native
def is_fenced(cta: CtaRecord, warp: int) -> int:
    """Whether a warp has issued a fence since the last barrier of its block."""
    return load64(cta.released + 8 * (WARPS * warp + warp)) > cta.met


@native
def observe(cta: CtaRecord, warp: int, writer: int, updates: int) -> None:
    """A warp finds what another one has written strongly. An atomic operation hands on what that one released.

    One lane may stand for its warp, as in the headers of cuda::pipeline: its fence is that of the others too.
    """
    if updates:
        own = 8 * (WARPS * warp + warp)
        raise_to(cta.known + own, load64(cta.released + own))
    for other in range(cta.warp_count):
        released = load64(cta.released + 8 * (WARPS * writer + other))
        raise_to(cta.seen + 8 * (WARPS * warp + other), released)
        if updates:
            raise_to(cta.known + 8 * (WARPS * warp + other), released)
            raise_to(cta.released + 8 * (WARPS * warp + other), released)


@native
def raise_to(place: int, time: int) -> None:
    """Make a time in memory no earlier than another."""
    if load64(place) < time:
        store64(place, time)


@native
def accuse(launch: LaunchRecord, trace: int, time: int) -> int:
    """Keep the access that another one races with."""
    launch.other = trace
    launch.other_time = time
    return 1


@native
def unordered(launch: LaunchRecord, cta: CtaRecord, floor: int, warp: int, other: int, time: int, thread: int) -> int:
    """Whether what thread ``other`` did at ``time`` may happen at the same time as what ``thread`` does now.

    A block has seen what another one did that issued a fence afterwards, if it has itself used an atomic since: so do
    "the last block to finish" and the barrier of a grid.
    """
    if time < floor:
        return False
    if is_own(launch, cta, time):
        return other != thread and time >= known(cta, warp, other >> 5)
    block = block_at(launch, time)
    if launch.cluster_size > 1:
        distance = block - cta.block_number + launch.cluster_size
        if block // launch.cluster_size == cta.block_number // launch.cluster_size:
            plane = distance % launch.cluster_size
            if load64(cta.known + PLANE * plane + ROW * warp + 8 * (other >> 5)) > time:
                return False
    return cta.acquired <= time or load64(launch.published + 8 * block) <= time


@native
def is_own(launch: LaunchRecord, cta: CtaRecord, time: int) -> int:
    """Whether it was this block that did what was done at ``time``."""
    if time >= cta.turn_began or time < cta.block_began:
        return time >= cta.turn_began
    return block_at(launch, time) == cta.block_number


@native
def block_at(launch: LaunchRecord, time: int) -> int:
    """The block whose turn it was."""
    low, high = 0, launch.turn_count
    while high - low > 1:
        middle = low + high >> 1
        if load64(launch.turns + 8 * middle) <= time:
            low = middle
        else:
            high = middle
    return load64(launch.turn_blocks + 8 * low)


@native
def known(cta: CtaRecord, warp: int, other: int) -> int:
    """The time up to which a warp knows what another one did."""
    return load64(cta.known + 8 * (WARPS * warp + other))


@native
def record_reader(launch: LaunchRecord, cta: CtaRecord, entry: int, reads: int, warp: int, trace: int) -> None:
    """Add a reader to the history. Readers that happen before this one are forgotten.

    So are those that have gone on where this one has, too, since the date of their reads: its own is later.
    """
    time, warps = reads >> 32, reads & LOW
    if not is_own(launch, cta, time) or (time < launch.time and are_past(cta, warp, warps, time)):
        warps = 0
        time = launch.time
        store64(entry + 16, trace)
    else:
        if time < launch.time and not went_on(cta, warps, time):
            time = launch.time
        readers = load64(entry + 16)
        last = readers & LOW
        if last >> 5 & 31 != warp or (readers >> 32 == 0 and last & THREAD != trace & THREAD):
            store64(entry + 16, last << 32 | trace)
    store64(entry + 8, time << 32 | warps | 1 << warp)


@native
def are_past(cta: CtaRecord, warp: int, warps: int, time: int) -> int:
    """Whether reads of ``warps`` at ``time`` need not be kept beside one of a warp now."""
    own = load64(cta.released + (ROW + 8) * warp)
    return (own > time and went_on(cta, warps, time)) or knows(cta, warp, warps, time)


@native
def went_on(cta: CtaRecord, warps: int, time: int) -> int:
    """Whether one of ``warps`` has released its read of ``time``, which may not be dated later then."""
    other = 0
    while warps:
        own = 8 * (WARPS * other + other)
        if warps & 1 and (load64(cta.released + own) > time or load64(cta.known + own) > time):
            return True
        warps >>= 1
        other += 1
    return False


@native
def knows(cta: CtaRecord, warp: int, warps: int, time: int) -> int:
    """Whether a warp knows what all of ``warps`` did at ``time``."""
    other = 0
    while warps:
        if warps & 1 and known(cta, warp, other) <= time:
            return False
        warps >>= 1
        other += 1
    return True


@native
def unordered_reader(
    launch: LaunchRecord, cta: CtaRecord, floor: int, reads: int, readers: int, warp: int, thread: int
) -> int:
    """Whether a thread read what ``thread`` writes now, without the two being ordered."""
    time, warps, last, before = reads >> 32, reads & LOW, readers & LOW, readers >> 32
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
