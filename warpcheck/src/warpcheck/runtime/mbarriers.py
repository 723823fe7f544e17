"""Barriers in shared memory, with transactions. PTX ISA manual, "Parallel Synchronization ... mbarrier".

The object is opaque there. Here it holds the arrivals that its phase still needs, those that a phase needs, the bytes
of transactions that it still expects, as a signed number, and the parity of the phase. A phase is over when it needs
neither. Tokens are the object as it was before the arrival.

The object is 8 bytes of shared memory that any store may change; what happens before what is kept apart, in a record
and two clocks for each barrier: of the arrivals so far, and of those of the last phase that is over. An arrival adds
what its warp knows to the first, who waits with success learns the second.

One file: nothing else reads or changes the bits of the object.
"""

from __future__ import annotations

from warpcheck.errors import FAULT_KINDS, FaultKind
from warpcheck.events import EventKind
from warpcheck.layout import LANES
from warpcheck.native import count_bits, load64, lowest_bit, native, store64
from warpcheck.runtime.clusters import join, publish, publish_released
from warpcheck.runtime.elected import arrived_alone, note_arrival
from warpcheck.runtime.happens_before import ROW, raise_to, unordered
from warpcheck.runtime.history import SITE, THREAD, accuse
from warpcheck.runtime.memory import ADDRESSES, OPERANDS, fault
from warpcheck.runtime.pending import BYTES, TRANSACTIONS, overflows, promised, transacted
from warpcheck.runtime.recorder import MBARRIERS, find_mbarrier, note_at
from warpcheck.runtime.records import CountsRecord, CtaRecord, LaunchRecord, MbarrierRecord, WarpRecord
from warpcheck.runtime.spaces import owner_of
from warpcheck.runtime.suspects import RACE, suspect
from warpcheck.runtime.sync import end_tracked

__all__ = [
    "COUNT",
    "EXPECTED",
    "MBARRIERS",
    "PHASE",
    "complete_tx",
    "mbarrier_arrive",
    "mbarrier_init",
    "mbarrier_inval",
    "mbarrier_transact",
    "mbarrier_wait",
    "require_init",
]

COUNT = (1 << 20) - 1  # of arrivals still needed, in the low bits
EXPECTED = 20  # where the number of those begins that a phase needs
PHASE = 61
BARRIER = FAULT_KINDS.index(FaultKind.BARRIER)
NO_BARRIER, TOO_OFTEN, NO_ARRIVALS, TOO_MANY, TOO_LONG, SEVERAL_LANES, AGAIN = 1, 2, 3, 4, 5, 6, 7
TOKENS = 512  # behind the operands: where arrivals leave the objects as they were


@native
def mbarrier_init(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, number: int, mask: int) -> int:
    """Begin barriers: the first row of operands has their arrivals."""
    while mask:
        lane = lowest_bit(mask)
        mask &= mask - 1
        address, count = load64(warp.address + ADDRESSES + 8 * lane), load64(warp.address + OPERANDS + 8 * lane)
        if count < 1 or count > COUNT:
            return complain(launch, warp, NO_ARRIVALS, number, lane, address)
        place = find_mbarrier(cta, address)
        if not place:
            place = find_mbarrier(cta, 0)
        if not place:
            return complain(launch, warp, TOO_MANY, number, lane, address)
        record = MbarrierRecord(place)
        record.place = address
        record.phases = 0
        record.promised = 0
        record.arrival = 0
        record.loose_lanes = 0
        record.loose_phase = -1
        record.trace = number + 1 << SITE | warp.index * LANES + lane
        record.began = launch.time
        clock = clock_of(launch, cta, place)
        for word in range(2 * 32 * launch.cluster_size):
            store64(clock + 8 * word, 0)
        store64(address, count | count << EXPECTED)
    return 0


@native
def mbarrier_inval(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, number: int, mask: int) -> int:
    """The memory of barriers is free for something else."""
    while mask:
        lane = lowest_bit(mask)
        mask &= mask - 1
        address = load64(warp.address + ADDRESSES + 8 * lane)
        place = find_mbarrier(cta, address)
        if not place:
            return missing(launch, cta, warp, number, lane, address)
        record = MbarrierRecord(place)
        record.place = 0
        store64(address, 0)
    return 0


@native
def mbarrier_arrive(
    launch: LaunchRecord,
    cta: CtaRecord,
    warp: WarpRecord,
    number: int,
    mask: int,
    drops: int,
    expects: int,
    relaxed: int,
) -> int:
    """Arrive at barriers, lane after lane: the first row of operands has how often, or what bytes to expect before.

    The objects as they were are left as tokens.
    """
    last, place, arriving, together = 0, 0, mask, 0
    launch.time += 1
    owner = CtaRecord(cta.address)
    while mask:
        lane = lowest_bit(mask)
        mask &= mask - 1
        address, count = load64(warp.address + ADDRESSES + 8 * lane), load64(warp.address + OPERANDS + 8 * lane)
        if address != last:
            last, together = address, 0
            owner = CtaRecord(owner_of(launch, cta, address))
            place = 0
            if owner.address:
                place = find_mbarrier(owner, address)
            if place:
                require_init(launch, cta, warp, owner, place, number, lane)
            if place and relaxed:
                publish_released(launch, cta, warp, clock_of(launch, owner, place))
            elif place:
                publish(launch, cta, warp, clock_of(launch, owner, place))
                if owner.address == cta.address:
                    note_arrival(launch, cta, warp, MbarrierRecord(place), arriving)
            if place:
                bytes_expected = count if expects else 0
                note_at(launch, cta, warp.index, EventKind.ARRIVE, number, owner, address, bytes_expected)
        if not place:
            if missing(launch, cta, warp, number, lane, address):
                return 1
        else:
            state = load64(address)
            store64(warp.address + OPERANDS + TOKENS + 8 * lane, state)
            if expects and overflows(state, count):
                return complain(launch, warp, TOO_LONG, number, lane, address)
            if expects:
                state = promised(place, number, state, count)
                count = 1
            if count > state & COUNT:
                has_all = owner.address == cta.address and state & COUNT == 0
                detail = too_often(launch, warp, MbarrierRecord(place), has_all, together)
                return complain(launch, warp, detail, number, lane, address)
            together += 1
            if owner.address == cta.address:
                record = MbarrierRecord(place)
                record.arrival = number + 1 << SITE | warp.index * LANES + lane
            state -= count
            if drops:
                state -= count << EXPECTED
            settle(launch, owner, place, state)
    return 0


@native
def too_often(launch: LaunchRecord, warp: WarpRecord, record: MbarrierRecord, has_all: int, together: int) -> int:
    """Say why a warp arrives more often than a phase needs, as far as that shows.

    has_all: whether the phase of a barrier of the warp's own block lacks bytes alone. together: lanes that have arrived
    by the same instruction.
    """
    if together:
        return SEVERAL_LANES
    if has_all and record.arrival and (record.arrival & THREAD) >> 5 == warp.index:
        accuse(launch, record.arrival, record.began)
        return AGAIN
    return TOO_OFTEN


@native
def mbarrier_transact(
    launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, number: int, mask: int, completes: int
) -> int:
    """expect_tx and complete_tx: the first row of operands has the bytes."""
    while mask:
        lane = lowest_bit(mask)
        mask &= mask - 1
        address, count = load64(warp.address + ADDRESSES + 8 * lane), load64(warp.address + OPERANDS + 8 * lane)
        owner = CtaRecord(owner_of(launch, cta, address))
        place = 0
        if owner.address:
            place = find_mbarrier(owner, address)
        if place:
            require_init(launch, cta, warp, owner, place, number, lane)
        if not place:
            if missing(launch, cta, warp, number, lane, address):
                return 1
        elif not completes and overflows(load64(address), count):
            return complain(launch, warp, TOO_LONG, number, lane, address)
        elif completes:
            complete_tx(launch, owner, address, count, cta, warp.index)
        else:
            settle(launch, owner, place, promised(place, number, load64(address), count))
    return 0


@native
def complete_tx(launch: LaunchRecord, owner: CtaRecord, address: int, count: int, writer: CtaRecord, warp: int) -> int:
    """Bytes of a copy have landed that a barrier in the shared memory of ``owner`` tracks; call it after the last one.

    The copy is the work of a warp of the block ``writer``: who waits for the barrier knows what that one has written
    until now. Returns 0 where no barrier is at the address.
    """
    place = find_mbarrier(owner, address)
    if not place:
        return 0
    launch.time += 1
    clock = clock_of(launch, owner, place)
    raise_to(clock + ROW * (writer.block_number % launch.cluster_size) + 8 * warp, launch.time)
    settle(launch, owner, place, transacted(load64(address), 0 - count))
    return 1


@native
def mbarrier_wait(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, number: int, mask: int, relaxed: int) -> int:
    """Leave the lanes as failing whose phase is not over: the first row of operands has its parity."""
    failing, last, joined, place, left = 0, 0, 0, 0, mask
    while left:
        lane = lowest_bit(left)
        left &= left - 1
        address = load64(warp.address + ADDRESSES + 8 * lane)
        if address != last:
            last = address
            place = find_mbarrier(cta, address)
            if place:
                require_init(launch, cta, warp, cta, place, number, lane)
        if not place:
            if missing(launch, cta, warp, number, lane, address):
                return 1
            failing |= 1 << lane
        elif (load64(address) >> PHASE ^ load64(warp.address + OPERANDS + 8 * lane)) & 1 == 0:
            failing |= 1 << lane
            warp.waits_at = address
        elif place != joined:
            if not relaxed:
                join(launch, cta, warp, clock_of(launch, cta, place) + ROW * launch.cluster_size)
                arrived_alone(warp, MbarrierRecord(place))
            end_tracked(launch, cta, MbarrierRecord(place))
            joined = place
    warp.failing = failing
    if failing != mask:
        passed = load64(warp.address + ADDRESSES + 8 * lowest_bit(mask & ~failing))
        note_at(launch, cta, warp.index, EventKind.PASS, number, cta, passed, 0)
        counts = CountsRecord(launch.counts + number * CountsRecord.size)
        counts.requests += 1
        counts.lanes += count_bits(mask & ~failing)
        counts.wavefronts += 1
        counts.least += 1
    return 0


@native
def settle(launch: LaunchRecord, owner: CtaRecord, place: int, state: int) -> None:
    """Store a barrier's object; where it needs nothing more, its next phase begins."""
    record = MbarrierRecord(place)
    launch.time += 1
    if state & COUNT == 0 and state >> TRANSACTIONS & BYTES == 0:
        state = state ^ 1 << PHASE | state >> EXPECTED & COUNT
        record.phases += 1
        record.promised = 0
        clock, words = clock_of(launch, owner, place), 32 * launch.cluster_size
        for word in range(words):
            store64(clock + 8 * (words + word), load64(clock + 8 * word))
    store64(record.place, state)


@native
def require_init(
    launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, owner: CtaRecord, place: int, number: int, lane: int
) -> None:
    """Suspect a use of a barrier that its initialization does not happen before; arrivals since hide that otherwise."""
    record = MbarrierRecord(place)
    thread = warp.index * LANES + lane
    if unordered(launch, cta, owner.block_began, warp.index, record.trace & THREAD, record.began, thread):
        accuse(launch, record.trace, record.began)
        suspect(launch, cta, warp, RACE, number, lane, record.place, 8)


@native
def clock_of(launch: LaunchRecord, cta: CtaRecord, place: int) -> int:
    """The clocks of a barrier, by the address of its record: they follow that of the cluster's barrier."""
    number = (place - cta.mbarriers) // MbarrierRecord.size
    return cta.clocks + 2 * ROW * launch.cluster_size * (number + 1)


@native
def missing(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, number: int, lane: int, address: int) -> int:
    """A barrier that is none: a fault, unless a read of unwritten memory is on record that says more."""
    if cta.suspect_address:
        return 0
    return complain(launch, warp, NO_BARRIER, number, lane, address)


@native
def complain(launch: LaunchRecord, warp: WarpRecord, detail: int, number: int, lane: int, address: int) -> int:
    """Write down which rule of barriers is broken."""
    launch.fault_detail = detail
    return fault(launch, warp, BARRIER, number, lane, address)
