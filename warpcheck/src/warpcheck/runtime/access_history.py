"""Access ids, and the writes in the history that a later access may race with.

An access id is the lower half of a word of the history. ``races`` describes the words.

     31          12      11        10     9        0
    [ site + 1     | volatile | atomic |  thread   ]

The thread is its number in the block: five bits of the warp, five of the lane. The site is counted from 1, so that an
access id is never 0. The atomic bit also stands for strong writes. The volatile bit without the atomic one means that a
bulk copy wrote the granule for the thread (ASYNCHRONOUS).

A write that is atomic, strong or volatile replaces the last write in the entry, but does not order what came before it.
Two more words for each granule therefore keep the last plain write that it replaced, and the last atomic write by
another warp: without the first, a thread's own atomic operation would hide its plain write; without the second, atomic
operations of one warp would hide those of another. These words are in memory of their own (``replaced_writes``), which
only kernels with atomic operations touch.
"""

from __future__ import annotations

from typing import NamedTuple

from warpcheck.layout import Access
from warpcheck.native import load64, native, noinline, store64
from warpcheck.runtime.happens_before import WARPS, block_at_time, is_by_own_block, is_unordered, raise_to
from warpcheck.runtime.partial_arrival import is_unreleased
from warpcheck.runtime.records import CtaRecord, LaunchRecord, SampleRecord

__all__ = [
    "ASYNCHRONOUS",
    "ATOMIC",
    "BLOCK_EXITED",
    "BLOCK_STRONG",
    "ENTRY_BYTES",
    "HEADER_BYTES",
    "LOAD",
    "LOW_WORD",
    "REPLACED_BYTES",
    "SITE_SHIFT",
    "STRONG",
    "THREAD_MASK",
    "UNKNOWN_ACCESS",
    "UNORDERED",
    "VOLATILE",
    "WAS_ATOMIC",
    "Granule",
    "access_id_of",
    "entry_of",
    "id_of",
    "is_speculative_read",
    "is_strong",
    "races_behind_atomic",
    "races_with_write",
    "replaced_writes",
    "save_replaced_write",
    "set_conflict",
    "site_of",
    "thread_of",
    "time_of",
    "warp_of",
]

LOAD = int(Access.LOAD)
ATOMIC = int(Access.ATOMIC)
# The memory ordering of an access; 0 is a plain (weak) one.
STRONG = 1  # relaxed or stronger, with a scope
VOLATILE = 2
UNORDERED = 3  # an access to an mbarrier object, which orders by its own rules
# As STRONG, or an atomic operation, with the scope of the block: for another block it is a plain access.
BLOCK_STRONG = STRONG | 4
ENTRY_BYTES = 32  # bytes of an entry of the history
HEADER_BYTES = (
    64  # bytes in front of a history; the last 8 have the address of the writes that atomic ones have replaced
)
REPLACED_BYTES = 16  # bytes for each granule's replaced writes: a plain and an atomic one
LOW_WORD = 0xFFFFFFFF
THREAD_MASK = (1 << 10) - 1
WAS_ATOMIC = 1 << 10
WAS_VOLATILE = 1 << 11
ASYNCHRONOUS = WAS_VOLATILE  # without WAS_ATOMIC: a bulk copy wrote it, for this thread
SITE_SHIFT = 12  # first bit of the site, counted from 1
UNKNOWN_ACCESS = -1  # in place of an access id that was not kept
BLOCK_EXITED = -2  # in place of an access id: the conflict is with the exit of the block


class Granule(NamedTuple):
    """The bytes that share an entry of a history.

    Attributes:
        floor: Accesses before this time cannot race: earlier launches; in shared memory, earlier blocks.
        history: The address of the history of a buffer, or of a block's shared memory.
        number: The number of the granule there.
    """

    floor: int
    history: int
    number: int


@native
def entry_of(granule: Granule) -> int:
    """Return the address of the entry of a granule."""
    return granule.history + ENTRY_BYTES * granule.number


@native
def access_id_of(site: int, thread: int) -> int:
    """Return the access id of a thread's access by the instruction ``site``, without flags."""
    return site + 1 << SITE_SHIFT | thread


@native
def thread_of(access_id: int) -> int:
    """Return the number of the thread in its block: of an access id, or of a word that has one in its lower half."""
    return access_id & THREAD_MASK


@native
def warp_of(access_id: int) -> int:
    """Return the number of the thread's warp in its block."""
    return (access_id & THREAD_MASK) >> 5


@native
def site_of(access_id: int) -> int:
    """Return the number of the access site."""
    return ((access_id & LOW_WORD) >> SITE_SHIFT) - 1


@native
def id_of(word: int) -> int:
    """Return the access id of a word of the history."""
    return word & LOW_WORD


@native
def time_of(word: int) -> int:
    """Return the time of a word of the history."""
    return word >> 32


@native
def set_conflict(launch: LaunchRecord, access_id: int, time: int) -> int:
    """Set the access that the present one races with. Return 1."""
    launch.conflict_id = access_id
    launch.conflict_time = time
    return 1


@native
def is_speculative_read(launch: LaunchRecord, site: int) -> int:
    """Return whether the plain reads of a site are the guesses of a compare-and-swap loop."""
    sample = SampleRecord(launch.samples + site * SampleRecord.size)
    return sample.is_speculative


@native
def is_strong(ordering: int) -> int:
    """Return whether an access is relaxed or stronger, at any scope."""
    return ordering & 3 == STRONG


@native
def has_block_scope(launch: LaunchRecord, site: int) -> int:
    """Return whether the accesses of a site have the scope of the block."""
    sample = SampleRecord(launch.samples + site * SampleRecord.size)
    return sample.has_block_scope


@native
def leaves_out_rank(launch: LaunchRecord, cta: CtaRecord, site: int, write_word: int) -> int:
    """Return whether an access and the last write are of different ranks, and one of them has the scope of a GPU."""
    sample = SampleRecord(launch.samples + site * SampleRecord.size)
    write_sample = SampleRecord(launch.samples + site_of(write_word) * SampleRecord.size)
    if not sample.has_device_scope and not write_sample.has_device_scope:
        return False
    block = block_at_time(launch, time_of(write_word))
    return block // launch.nctaid_x % launch.nctaid_y != cta.block_number // launch.nctaid_x % launch.nctaid_y


@native
def observe_write(cta: CtaRecord, warp: int, writer_warp: int, is_atomic: int) -> None:
    """Record that a warp finds what another one has written strongly. An atomic operation also acquires and passes
    on its release.

    One lane may act for its warp, as in the headers of cuda::pipeline: its fence counts for the other lanes too.
    """
    # An atomic operation acquires, for all lanes of its warp: what its warp released itself counts as known, too.
    if is_atomic:
        diagonal = 8 * (WARPS * warp + warp)
        raise_to(cta.vector_clock + diagonal, load64(cta.vc_released + diagonal))
    for other_warp in range(cta.warp_count):
        released_time = load64(cta.vc_released + 8 * (WARPS * writer_warp + other_warp))
        raise_to(cta.vc_observed + 8 * (WARPS * warp + other_warp), released_time)
        if is_atomic:
            raise_to(cta.vector_clock + 8 * (WARPS * warp + other_warp), released_time)
            raise_to(cta.vc_released + 8 * (WARPS * warp + other_warp), released_time)


@native
def replaced_writes(history: int, granule_index: int) -> int:
    """Return the address of the two words that keep the writes that an atomic or strong one has replaced: plain, and
    atomic.
    """
    return load64(history - 8) + REPLACED_BYTES * granule_index


@native
def save_replaced_write(address: int, write_word: int, warp: int) -> None:
    """Save the write that an atomic or strong write of a warp is about to replace in the history."""
    if not write_word & WAS_ATOMIC:
        store64(address, write_word)
        store64(address + 8, 0)
    elif warp_of(write_word) != warp:
        store64(address + 8, write_word)


@native
def races_with_write(launch: LaunchRecord, cta: CtaRecord, floor: int, warp: int, thread: int, write_word: int) -> int:
    """Return whether an access is unordered with a write of the history."""
    writer = thread_of(write_word)
    time = time_of(write_word)
    if is_unordered(launch, cta, floor, warp, writer, time, thread):
        return set_conflict(launch, id_of(write_word), time)
    if cta.mbarriers and is_unreleased(launch, cta, warp, writer, time):
        return set_conflict(launch, id_of(write_word), time)
    return 0


@noinline
def races_behind_atomic(
    launch: LaunchRecord,
    cta: CtaRecord,
    granule: Granule,
    thread: int,
    site: int,
    kind: int,
    ordering: int,
    is_atomic: int,
) -> int:
    """Return whether an access races with the last write, which was atomic or strong, or with a write that this one
    replaced.

    Replaced atomic operations count only if they are of the same block: blocks that have all updated one word take
    turns by it, whatever they do to the word afterwards.
    """
    floor = granule.floor
    write_word = load64(granule.history + ENTRY_BYTES * granule.number)
    warp = thread >> 5
    in_shared = floor == cta.block_began
    if time_of(write_word) < floor:
        return 0
    # An atomic access is compatible with any last write, because that was atomic or strong, or volatile and polled. A
    # plain load is the guess of a compare-and-swap loop, or finds a flag; only after a volatile write it is a conflict.
    is_compatible = is_atomic or (kind == LOAD and not write_word & WAS_VOLATILE)
    acquires = ordering != UNORDERED and (ordering or kind == ATOMIC)
    if is_by_own_block(launch, cta, time_of(write_word)):
        if is_compatible and acquires and not write_word & WAS_VOLATILE:
            observe_write(cta, warp, warp_of(write_word), kind == ATOMIC)
    elif acquires and (
        ordering == BLOCK_STRONG
        or has_block_scope(launch, site_of(write_word))
        or leaves_out_rank(launch, cta, site, write_word)
    ):
        # PTX ISA, "Morally Strong Operations": each of the two must have a scope that includes the other's thread.
        is_compatible = 0
    # In shared memory a plain read races with an atomic write of another warp, unless it is speculative.
    is_plain_read = (
        is_compatible and not is_atomic and not ordering and in_shared and not is_speculative_read(launch, site)
    )
    is_conflict = not is_compatible or (is_plain_read and warp_of(write_word) != warp)
    if is_conflict and races_with_write(launch, cta, floor, warp, thread, write_word):
        return 1
    replaced_plain = load64(replaced_writes(granule.history, granule.number))
    replaced_atomic = load64(replaced_writes(granule.history, granule.number) + 8)
    # The plain write before the atomic ones: compatibility does not excuse it.
    if replaced_plain and races_with_write(launch, cta, floor, warp, thread, replaced_plain):
        return 1
    if (
        not in_shared
        or (is_compatible and not is_plain_read)
        or time_of(replaced_atomic) < floor
        or warp_of(replaced_atomic) == warp
    ):
        return 0
    return is_by_own_block(launch, cta, time_of(replaced_atomic)) and races_with_write(
        launch, cta, floor, warp, thread, replaced_atomic
    )
