"""The history of a granule of memory: the accesses that it keeps, and the writes that a later one may race with.

A trace is a thread, a bit for a strong write, one for a volatile write, and the instruction's number. Behind an atomic
or strong write, two more words keep what it has replaced: the last plain write, and the last atomic write by another
warp. So neither a plain write that a thread's own atomic operation follows is lost, nor atomic operations that those of
one more warp follow. These words lie apart (``shadowed``), in memory that only kernels with atomic operations
touch. ``races`` has the rest.
"""

from __future__ import annotations

from warpcheck.layout import Access
from warpcheck.native import apart, load64, native, store64
from warpcheck.runtime.elected import not_released
from warpcheck.runtime.happens_before import WARPS, is_own, raise_to, unordered
from warpcheck.runtime.records import CtaRecord, LaunchRecord, SampleRecord

__all__ = [
    "ASYNCHRONOUS",
    "ATOMIC",
    "ENTRY",
    "EXITED",
    "HEADER",
    "LOAD",
    "LOW",
    "NOBODY",
    "SHADOWED",
    "SITE",
    "STRONG",
    "THREAD",
    "UNORDERED",
    "VOLATILE",
    "WAS_ATOMIC",
    "accuse",
    "is_guess",
    "keep_shadowed",
    "races_behind_atomic",
    "races_with_write",
    "shadowed",
]

LOAD, ATOMIC = int(Access.LOAD), int(Access.ATOMIC)
STRONG, VOLATILE, UNORDERED = 1, 2, 3  # how strong an access may be, beside not at all; the last orders nothing itself
ENTRY = 32  # bytes of an entry of the history
HEADER = 64  # bytes in front of a history; the last 8 have the address of the writes that atomic ones have replaced
SHADOWED = 16  # bytes of these for each granule: a plain and an atomic write; see shadowed
LOW = 0xFFFFFFFF
THREAD = (1 << 10) - 1
WAS_ATOMIC = 1 << 10
WAS_VOLATILE = 1 << 11
ASYNCHRONOUS = WAS_VOLATILE  # without WAS_ATOMIC: a bulk copy wrote it, for this thread
SITE = 12  # where the number of the instruction begins, counted from 1: a trace is never 0
NOBODY = -1  # in place of a trace that was not kept
EXITED = -2  # in place of a trace: not another access is to blame, but that the block has exited


@native
def accuse(launch: LaunchRecord, trace: int, time: int) -> int:
    """Keep the access that another one races with."""
    launch.other = trace
    launch.other_time = time
    return 1


@native
def is_guess(launch: LaunchRecord, number: int) -> int:
    """Whether the plain reads of an instruction are excused."""
    sample = SampleRecord(launch.samples + number * SampleRecord.size)
    return sample.guesses


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
def shadowed(history: int, place: int) -> int:
    """Where a granule has the writes that the last one, an atomic or strong one, has replaced: plain, and atomic."""
    return load64(history - 8) + SHADOWED * place


@native
def keep_shadowed(kept: int, write: int, warp: int) -> None:
    """An atomic or strong write of a warp replaces ``write`` in the history."""
    if not write & WAS_ATOMIC:
        store64(kept, write)
        store64(kept + 8, 0)
    elif (write & THREAD) >> 5 != warp:
        store64(kept + 8, write)


@native
def races_with_write(launch: LaunchRecord, cta: CtaRecord, floor: int, warp: int, thread: int, write: int) -> int:
    """Whether an access is not ordered behind a write of the history."""
    other, time = write & THREAD, write >> 32
    if unordered(launch, cta, floor, warp, other, time, thread):
        return accuse(launch, write & LOW, time)
    if cta.mbarriers and not_released(launch, cta, warp, other, time):
        return accuse(launch, write & LOW, time)
    return 0


@apart
def races_behind_atomic(
    launch: LaunchRecord,
    cta: CtaRecord,
    floor: int,
    history: int,
    place: int,
    thread: int,
    number: int,
    kind: int,
    strong: int,
    atomic: int,
) -> int:
    """Whether an access races with the last write, which was atomic or strong, or with one that this has replaced.

    Of the atomic operations that it has replaced only those of the own block count: blocks that have all gone through
    one on a word take turns by it, whatever they do to the word then.
    """
    write, warp, in_shared = load64(history + ENTRY * place), thread >> 5, floor == cta.block_began
    if write >> 32 < floor:
        return 0
    allowed = atomic or (kind == LOAD and not write & WAS_VOLATILE)
    hands_on = strong != UNORDERED and (strong or kind == ATOMIC)
    if allowed and hands_on and not write & WAS_VOLATILE and is_own(launch, cta, write >> 32):
        observe(cta, warp, (write & THREAD) >> 5, kind == ATOMIC)
    reads = allowed and not atomic and not strong and in_shared and not is_guess(launch, number)
    judged = not allowed or (reads and (write & THREAD) >> 5 != warp)
    if judged and races_with_write(launch, cta, floor, warp, thread, write):
        return 1
    plain, before = load64(shadowed(history, place)), load64(shadowed(history, place) + 8)
    if plain and races_with_write(launch, cta, floor, warp, thread, plain):
        return 1
    if not in_shared or (allowed and not reads) or before >> 32 < floor or (before & THREAD) >> 5 == warp:
        return 0
    return is_own(launch, cta, before >> 32) and races_with_write(launch, cta, floor, warp, thread, before)
