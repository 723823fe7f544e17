"""The cost of one access, as the hardware's profiler counts it.

Global memory moves in sectors of 32 bytes: a request needs each sector that its lanes touch once. Shared memory has 32
banks of 4 bytes: lanes that access different words of one bank conflict, and each round is a wavefront. Accesses of 8
and 16 bytes are served for 16 and 8 lanes at a time, or for twice as many if neighbors share an address. Atomic
operations on one word serialize: the request takes as many rounds as lanes address the most contended word. Constant
memory delivers one address at a time: a request takes as many accesses as its lanes have different addresses (CUDA C++
Programming Guide, "Constant Memory").
"""

from __future__ import annotations

import numpy as np

from warpcheck.layout import BANKS, LANES, AtomicStrategy
from warpcheck.native import View, count_bits, load64, lowest_bit, native, noinline, offset_bits, run_heads, store64
from warpcheck.runtime.address_spaces import RANK
from warpcheck.runtime.records import CountsRecord

__all__ = [
    "CHUNK",
    "NO_CHUNK",
    "ChunkRecord",
    "count_addresses",
    "count_atomic_sectors",
    "count_same_address",
    "count_sectors",
    "count_sectors_within",
    "count_shared",
    "is_in_registers",
    "lanes_of_block",
    "run_starts",
    "scattered",
]


NO_CHUNK = -1  # in place of the number of a chunk

CHUNK = np.dtype([("number", "i8"), ("used_bytes", "i8")])  # a piece of memory, and which of its bytes have been used


class ChunkRecord(View):
    """A view of CHUNK."""

    record = CHUNK


@native
def is_in_registers(counts: CountsRecord, addresses: int, mask: int, size: int) -> int:
    """Return whether a merged access of the group has loaded these bytes already, and none has used them since.

    The first active lane stands for all lanes: they have their addresses at the same offset of a chunk.
    """
    if counts.width == 0:
        return 0
    address = load64(addresses + 8 * lowest_bit(mask))
    chunk_number = address // counts.width
    offset = address % counts.width
    chunk = ChunkRecord(counts.chunks + (chunk_number & counts.chunk_mask) * ChunkRecord.size)
    byte_mask = ((1 << size) - 1) << offset
    # A byte that was used before is loaded again: a second pass over the same memory is a new request.
    if chunk.number == chunk_number and not chunk.used_bytes & byte_mask:
        chunk.used_bytes |= byte_mask
        return 1
    chunk.number = chunk_number
    chunk.used_bytes = byte_mask
    return 0


@native
def count_sectors(addresses: int, mask: int) -> int:
    """Return the number of different sectors among the active lanes. An aligned access of up to 16 bytes touches
    one.
    """
    return count_sectors_within(addresses, mask, offset_bits(addresses))


@native
def count_sectors_within(addresses: int, mask: int, spread: int) -> int:
    """Return `count_sectors`; ``spread`` is the `offset_bits` of the addresses."""
    base = load64(addresses)
    if spread >= 0 and (base & 31) + spread < 32:
        return 1
    starts = run_starts(addresses, mask, 5)
    # A word has a bit for each sector from that of lane 0 on, if no lane is farther away.
    if spread >= 0 and spread < 32 * 63:
        sectors = 0
        while starts:
            sectors |= 1 << (load64(addresses + 8 * lowest_bit(starts)) >> 5) - (base >> 5)
            starts &= starts - 1
        return count_bits(sectors)
    return count_far_sectors(addresses, starts)


@native
def count_far_sectors(addresses: int, starts: int) -> int:
    """Return the number of different sectors among the lanes ``starts``."""
    sectors = 0
    highest = -1
    remaining = starts
    while remaining:
        lane = lowest_bit(remaining)
        remaining &= remaining - 1
        # Ascending addresses, the common case, need no search.
        sector = load64(addresses + 8 * lane) >> 5
        if sector > highest:
            highest = sector
            sectors += 1
        elif sector < highest:
            sectors += is_new_sector(addresses, starts, lane, sector)
    return sectors


@native
def run_starts(addresses: int, mask: int, shift: int) -> int:
    """Return the active lanes without those whose address, less ``shift`` low bits, equals that of an active lane
    just before.
    """
    return mask & (run_heads(addresses, shift) | ~(mask << 1))


@native
def scattered(sectors: int, size: int) -> int:
    """Return by how many the sectors of one request exceed twice those that its ``size`` bytes fill, plus one.

    A request whose bytes are contiguous in pieces of 32 or more touches at most that many, aligned or not.
    """
    return max(0, sectors - 2 * ((size + 31) // 32) - 1)


@native
def is_new_sector(addresses: int, mask: int, lane: int, sector: int) -> int:
    """Return whether no active lane before ``lane`` touches a sector."""
    for earlier_lane in range(lane):
        if mask >> earlier_lane & 1 and load64(addresses + 8 * earlier_lane) >> 5 == sector:
            return 0
    return 1


@noinline
def count_atomic_sectors(addresses: int, mask: int) -> int:
    """Return the sectors of an atomic operation: lanes at one address take turns, each with its sector."""
    sectors = 0
    while mask:
        turn = first_lanes(addresses, mask)
        sectors += count_sectors(addresses, turn)
        mask &= ~turn
    return sectors


@noinline
def count_same_address(addresses: int, mask: int) -> int:
    """Return the most active lanes at one address: the turns that an atomic operation takes."""
    turns = 0
    while mask:
        mask &= ~first_lanes(addresses, mask)
        turns += 1
    return turns


@noinline
def count_addresses(addresses: int, mask: int) -> int:
    """Return the number of different addresses of the active lanes: the accesses that constant memory makes."""
    count = 0
    distinct = first_lanes(addresses, mask)
    while distinct:
        distinct &= distinct - 1
        count += 1
    return count


@native
def first_lanes(addresses: int, mask: int) -> int:
    """Return the first active lane at each address."""
    turn = 0
    for lane in range(LANES):
        if mask >> lane & 1 and is_first(addresses, mask, lane):
            turn |= 1 << lane
    return turn


@native
def is_first(addresses: int, mask: int, lane: int) -> int:
    """Return whether no active lane before ``lane`` has its address."""
    for earlier_lane in range(lane):
        if mask >> earlier_lane & 1 and load64(addresses + 8 * earlier_lane) == load64(addresses + 8 * lane):
            return 0
    return 1


@native
def count_wavefronts(addresses: int, mask: int, size: int, atomic: int, bank_words: int) -> int:
    """Return the wavefronts of an access, one group of lanes after another. ``bank_words`` is the address of 32
    words of scratch.
    """
    first = 0
    wavefronts = 0
    # A group takes as many wavefronts as its most contended bank has different words.
    while first < LANES:
        lanes = group_lanes(addresses, mask, size, first)
        remaining = mask & ((1 << lanes) - 1) << first
        lines = run_starts(addresses, remaining, 7)
        if not atomic and lines & lines - 1 == 0:  # in 128 bytes that are aligned every word has a bank of its own
            wavefronts += remaining != 0
            remaining = 0
        while remaining:
            remaining = serve_wavefront(addresses, remaining, max(size, 4), atomic, bank_words)
            wavefronts += 1
        first += lanes
    return wavefronts


@noinline
def count_shared(counts: CountsRecord, addresses: int, mask: int, size: int, atomic: int, bank_words: int) -> None:
    """Count the wavefronts of an access to shared memory; for an atomic operation, by its AtomicStrategy."""
    serializes = atomic and counts.atomic_strategy != AtomicStrategy.INCREMENT
    wavefronts = count_wavefronts(addresses, mask, size, serializes, bank_words)
    if atomic and counts.atomic_strategy == AtomicStrategy.SPIN:
        counts.requests += wavefronts - 1
        counts.loop_wavefronts += count_loop(addresses, mask, size, bank_words)
    is_compare_and_swap = atomic and counts.atomic_strategy >= AtomicStrategy.SWAP
    counts.wavefronts += wavefronts << is_compare_and_swap
    counts.least += least_wavefronts(addresses, mask, size) << is_compare_and_swap


@native
def count_loop(addresses: int, mask: int, size: int, bank_words: int) -> int:
    """Return the wavefronts of the loads in a compare-and-swap loop: each pass swaps in as many lanes as there are
    banks for.
    """
    wavefronts = 0
    while mask:
        wavefronts += count_wavefronts(addresses, mask, size, 0, bank_words)
        mask = serve_wavefront(addresses, mask, max(size, 4), 1, bank_words)
    return wavefronts


@native
def lanes_of_block(addresses: int, mask: int, shared: int) -> int:
    """Return the active lanes whose addresses are in the shared memory of the block that begins at ``shared``."""
    own_lanes = 0
    while mask:
        lane = lowest_bit(mask)
        mask &= mask - 1
        own_lanes |= (load64(addresses + 8 * lane) - shared >> RANK == 0) << lane
    return own_lanes


@native
def least_wavefronts(addresses: int, mask: int, size: int) -> int:
    """Return the wavefronts without bank conflicts: one for each group that has an active lane."""
    first = 0
    least = 0
    while first < LANES:
        lanes = group_lanes(addresses, mask, size, first)
        least += (mask >> first & (1 << lanes) - 1) != 0
        first += lanes
    return least


@native
def group_lanes(addresses: int, mask: int, size: int, first: int) -> int:
    """Return how many lanes from ``first`` on are served together.

    These are the lanes that fill 128 bytes, or twice as many where neighbors share an address. No manual says so; the
    counters of ncu do.
    """
    if size <= 4:
        return LANES
    lanes = LANES * 4 // size
    if first % (2 * lanes) == 0 and (
        shared_by(addresses, mask, first, lanes, 1) or shared_by(addresses, mask, first, lanes, 2)
    ):
        return 2 * lanes
    return lanes


@native
def shared_by(addresses: int, mask: int, first: int, lanes: int, distance: int) -> int:
    """Return whether each active lane of two groups has the address of the lane ``distance`` away, if that is active
    too.
    """
    for lane in range(first, first + 2 * lanes):
        partner = lane ^ distance
        if mask >> lane & mask >> partner & 1 and load64(addresses + 8 * lane) != load64(addresses + 8 * partner):
            return 0
    return 1


@native
def serve_wavefront(addresses: int, mask: int, size: int, atomic: int, bank_words: int) -> int:
    """Serve one wavefront: each bank delivers the word of the first lane that needs it. Return the lanes that still
    wait.

    Other lanes that need the same word are served with it, except by atomic operations.
    """
    busy = 0
    waiting = 0
    while mask:
        lane = lowest_bit(mask)
        mask &= mask - 1
        word = load64(addresses + 8 * lane) // size
        # A word of 8 or 16 bytes takes 2 or 4 adjacent banks, so there are fewer of them.
        bank = word % (4 * BANKS // size)
        if not busy >> bank & 1:
            busy |= 1 << bank
            store64(bank_words + 8 * bank, word)
        elif atomic or load64(bank_words + 8 * bank) != word:
            waiting |= 1 << lane
    return waiting
