"""What one access costs, as the profiler of the hardware counts it.

Global memory moves in sectors of 32 bytes: a request needs each sector that its lanes touch once. Shared memory has 32
banks of 4 bytes: lanes that want different words of one bank wait for each other, and each round is a wavefront.
Accesses of 8 and 16 bytes go in groups of 16 and 8 lanes, or of twice as many where neighbors share what they want.
Atomic operations on one word take turns: as many as lanes meet at the address that most of them want.
"""

from __future__ import annotations

import numpy as np

from warpcheck.layout import BANKS, LANES, Way
from warpcheck.native import View, apart, changes, load64, lowest_bit, native, store64
from warpcheck.runtime.records import CountsRecord
from warpcheck.runtime.spaces import RANK

__all__ = [
    "CHUNK",
    "count_atomic_sectors",
    "count_same_address",
    "count_sectors",
    "count_shared",
    "in_registers",
    "of_block",
    "run_starts",
    "scattered",
]


CHUNK = np.dtype([("number", "i8"), ("taken", "i8")])  # a piece of memory, and which of its bytes have been used


class ChunkRecord(View):
    """A view of CHUNK."""

    record = CHUNK


@native
def in_registers(counts: CountsRecord, addresses: int, mask: int, size: int) -> int:
    """Whether an access of the group has brought these bytes already, and nobody took them from there.

    The first active lane speaks for all: they have their addresses in the same place of a chunk.
    """
    if counts.width == 0:
        return 0
    address = load64(addresses + 8 * lowest_bit(mask))
    number, place = address // counts.width, address % counts.width
    chunk = ChunkRecord(counts.chunks + (number & counts.chunk_mask) * ChunkRecord.size)
    taken = ((1 << size) - 1) << place
    if chunk.number == number and not chunk.taken & taken:
        chunk.taken |= taken
        return 1
    chunk.number = number
    chunk.taken = taken
    return 0


@native
def count_sectors(addresses: int, mask: int) -> int:
    """Different sectors among the active lanes. An aligned access of up to 16 bytes lies within one."""
    sectors = 0
    highest = -1
    starts = run_starts(addresses, mask, 5)
    left = starts
    while left:
        lane = lowest_bit(left)
        left &= left - 1
        sector = load64(addresses + 8 * lane) >> 5
        if sector > highest:
            highest = sector
            sectors += 1
        elif sector < highest:
            sectors += is_new(addresses, starts, lane, sector)
    return sectors


@native
def run_starts(addresses: int, mask: int, shift: int) -> int:
    """The active lanes but for those with the address, without ``shift`` low bits, of an active lane just before."""
    return mask & (changes(addresses, shift) | ~(mask << 1))


@native
def scattered(sectors: int, size: int) -> int:
    """Sectors of one request beyond twice those that its ``size`` bytes fill, and one.

    So many does a request touch at most whose bytes lie together in pieces of 32 or more, aligned or not.
    """
    return max(0, sectors - 2 * ((size + 31) // 32) - 1)


@native
def is_new(addresses: int, mask: int, lane: int, sector: int) -> int:
    """Whether no active lane before ``lane`` touches a sector."""
    for before in range(lane):
        if mask >> before & 1 and load64(addresses + 8 * before) >> 5 == sector:
            return 0
    return 1


@apart
def count_atomic_sectors(addresses: int, mask: int) -> int:
    """Sectors of an atomic operation: lanes that meet at one address come one after another, each with its sector."""
    sectors = 0
    while mask:
        turn = next_turn(addresses, mask)
        sectors += count_sectors(addresses, turn)
        mask &= ~turn
    return sectors


@apart
def count_same_address(addresses: int, mask: int) -> int:
    """The most active lanes that meet at one address: the turns that an atomic operation takes."""
    turns = 0
    while mask:
        mask &= ~next_turn(addresses, mask)
        turns += 1
    return turns


@native
def next_turn(addresses: int, mask: int) -> int:
    """The first of the active lanes at each address."""
    turn = 0
    for lane in range(LANES):
        if mask >> lane & 1 and is_first(addresses, mask, lane):
            turn |= 1 << lane
    return turn


@native
def is_first(addresses: int, mask: int, lane: int) -> int:
    """Whether no active lane before ``lane`` has its address."""
    for before in range(lane):
        if mask >> before & 1 and load64(addresses + 8 * before) == load64(addresses + 8 * lane):
            return 0
    return 1


@native
def count_wavefronts(addresses: int, mask: int, size: int, atomic: int, served: int) -> int:
    """Rounds that the banks need, group of lanes by group. ``served`` is the address of 32 words to work with."""
    first, wavefronts = 0, 0
    while first < LANES:
        lanes = group_lanes(addresses, mask, size, first)
        left = mask & ((1 << lanes) - 1) << first
        lines = run_starts(addresses, left, 7)
        if not atomic and lines & lines - 1 == 0:  # in 128 bytes that are aligned every word has a bank of its own
            wavefronts += left != 0
            left = 0
        while left:
            left = serve(addresses, left, max(size, 4), atomic, served)
            wavefronts += 1
        first += lanes
    return wavefronts


@apart
def count_shared(counts: CountsRecord, addresses: int, mask: int, size: int, atomic: int, served: int) -> None:
    """Count the wavefronts of an access to shared memory, an atomic one as its way is."""
    turns = atomic and counts.way != Way.INCREMENT
    wavefronts = count_wavefronts(addresses, mask, size, turns, served)
    if atomic and counts.way == Way.SPIN:
        counts.requests += wavefronts - 1
        counts.loop_wavefronts += count_loop(addresses, mask, size, served)
    swaps = atomic and counts.way >= Way.SWAP
    counts.wavefronts += wavefronts << swaps
    counts.least += least_wavefronts(addresses, mask, size) << swaps


@native
def count_loop(addresses: int, mask: int, size: int, served: int) -> int:
    """Wavefronts of the loads in a loop that swaps in as many lanes at once as there are banks for."""
    wavefronts = 0
    while mask:
        wavefronts += count_wavefronts(addresses, mask, size, 0, served)
        mask = serve(addresses, mask, max(size, 4), 1, served)
    return wavefronts


@native
def of_block(addresses: int, mask: int, shared: int) -> int:
    """The active lanes whose addresses are in the shared memory of the block whose own begins there."""
    found = 0
    while mask:
        lane = lowest_bit(mask)
        mask &= mask - 1
        found |= (load64(addresses + 8 * lane) - shared >> RANK == 0) << lane
    return found


@native
def least_wavefronts(addresses: int, mask: int, size: int) -> int:
    """Rounds without conflicts: one for each group that has an active lane."""
    first, least = 0, 0
    while first < LANES:
        lanes = group_lanes(addresses, mask, size, first)
        least += (mask >> first & (1 << lanes) - 1) != 0
        first += lanes
    return least


@native
def group_lanes(addresses: int, mask: int, size: int, first: int) -> int:
    """How many lanes from ``first`` on are served together.

    As many as fill 128 bytes, and twice as many where neighbors share an address. No manual says so: ncu does.
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
    """Whether each active lane of two groups has the address of that ``distance`` away, if that is active too."""
    for lane in range(first, first + 2 * lanes):
        other = lane ^ distance
        if mask >> lane & mask >> other & 1 and load64(addresses + 8 * lane) != load64(addresses + 8 * other):
            return 0
    return 1


@native
def serve(addresses: int, mask: int, size: int, atomic: int, served: int) -> int:
    """One wavefront: each bank serves the word of the first lane that wants it. Returns the lanes still waiting.

    Other lanes that want the same word are served with it, but for atomic operations.
    """
    busy, waiting = 0, 0
    while mask:
        lane = lowest_bit(mask)
        mask &= mask - 1
        word = load64(addresses + 8 * lane) // size
        bank = word % (4 * BANKS // size)
        if not busy >> bank & 1:
            busy |= 1 << bank
            store64(served + 8 * bank, word)
        elif atomic or load64(served + 8 * bank) != word:
            waiting |= 1 << lane
    return waiting
