"""mbarrier objects, with transactions. PTX ISA manual, "Parallel Synchronization ... mbarrier".

PTX calls the object opaque. Here its 64 bits are:

    63 62   61   60            40 39           20 19            0
    [ 0 | parity | pending bytes | arrival count | pending arrivals ]

Pending bytes are signed (21 bits): more bytes may have landed than were announced so far. The arrival count is the
number that each phase needs. A phase is complete when neither arrivals nor bytes are pending. The token of an arrival
is the object before it.

The object is 8 bytes of shared memory, which any store may change. What it orders is kept apart: a record and two
vector clocks for each mbarrier, of the arrivals so far, and of the last phase that is complete. An arrival joins its
warp's clock into the first; a successful wait acquires the second.
"""

from __future__ import annotations

from warpcheck.errors import FAULT_KINDS, FaultKind
from warpcheck.events import EventKind
from warpcheck.layout import LANES
from warpcheck.native import count_bits, load64, lowest_bit, native, store64
from warpcheck.runtime.access_history import access_id_of, set_conflict, thread_of, warp_of
from warpcheck.runtime.address_spaces import owner_of
from warpcheck.runtime.clusters import (
    acquire_clock,
    join_clock,
    pass_on_clock,
    release_fenced_to_clock,
    release_to_clock,
)
from warpcheck.runtime.deferred_faults import RACE, defer_fault
from warpcheck.runtime.event_recorder import MBARRIERS, find_mbarrier, record_barrier_event
from warpcheck.runtime.happens_before import ROW_BYTES, is_unordered, raise_to
from warpcheck.runtime.memory import ADDRESSES, OPERANDS, record_fault
from warpcheck.runtime.partial_arrival import note_partial_arrival, note_partial_wait
from warpcheck.runtime.records import CountsRecord, CtaRecord, LaunchRecord, MbarrierRecord, WarpRecord
from warpcheck.runtime.sync import end_tracked
from warpcheck.runtime.tx_count import PENDING_MASK, PENDING_SHIFT, add_pending_bytes, expect_bytes, pending_overflows

__all__ = [
    "ARRIVALS_MASK",
    "EXCESS_ARRIVAL",
    "EXPECTED_SHIFT",
    "MBARRIERS",
    "PHASE_BIT",
    "SEVERAL_LANES",
    "arrive_for_tensor_core",
    "complete_tx",
    "mbarrier_arrive",
    "mbarrier_init",
    "mbarrier_inval",
    "mbarrier_transact",
    "mbarrier_wait",
    "pass_on_to_commit",
    "record_mbarrier_fault",
    "report_missing",
    "require_init",
]

ARRIVALS_MASK = (1 << 20) - 1  # the pending arrivals
EXPECTED_SHIFT = 20  # first bit of the arrival count of a phase
PHASE_BIT = 61
BARRIER_FAULT = FAULT_KINDS.index(FaultKind.BARRIER)
NOT_INITIALIZED = 1
EXCESS_ARRIVAL = 2
NO_ARRIVALS = 3
TOO_MANY_BARRIERS = 4
TOO_MANY_BYTES = 5
SEVERAL_LANES = 6
ARRIVES_AGAIN = 7
TOKENS_OFFSET = 512  # offset from the operands at which arrivals leave the previous objects, as tokens


@native
def mbarrier_init(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, site: int, mask: int) -> int:
    """Initialize mbarriers: the first row of operands has their arrival counts."""
    while mask:
        lane = lowest_bit(mask)
        mask &= mask - 1
        address = load64(warp.address + ADDRESSES + 8 * lane)
        count = load64(warp.address + OPERANDS + 8 * lane)
        if count < 1 or count > ARRIVALS_MASK:
            return record_mbarrier_fault(launch, warp, NO_ARRIVALS, site, lane, address)
        record_address = find_mbarrier(cta, address)
        if not record_address:
            # A record that belongs to no object has the address 0.
            record_address = find_mbarrier(cta, 0)
        if not record_address:
            return record_mbarrier_fault(launch, warp, TOO_MANY_BARRIERS, site, lane, address)
        record = MbarrierRecord(record_address)
        record.object_address = address
        record.completed_phases = 0
        record.expected_bytes = 0
        record.last_arrival_id = 0
        record.unreleased_lanes = 0
        record.partial_phase = -1
        record.init_id = access_id_of(site, warp.index * LANES + lane)
        record.init_time = launch.time
        clock = clock_address(launch, cta, record_address)
        for word in range(2 * 32 * launch.cluster_size):
            store64(clock + 8 * word, 0)
        # Phase 0 begins with parity 0: all arrivals are pending, and no bytes.
        store64(address, count | count << EXPECTED_SHIFT)
    return 0


@native
def mbarrier_inval(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, site: int, mask: int) -> int:
    """Forget the mbarriers at these addresses."""
    while mask:
        lane = lowest_bit(mask)
        mask &= mask - 1
        address = load64(warp.address + ADDRESSES + 8 * lane)
        record_address = find_mbarrier(cta, address)
        if not record_address:
            return report_missing(launch, cta, warp, site, lane, address)
        record = MbarrierRecord(record_address)
        record.object_address = 0
        store64(address, 0)
    return 0


@native
def mbarrier_arrive(
    launch: LaunchRecord,
    cta: CtaRecord,
    warp: WarpRecord,
    site: int,
    mask: int,
    drops_expected: int,
    expects_bytes: int,
    relaxed: int,
) -> int:
    """Arrive at mbarriers, lane after lane, and leave the objects before the arrival as tokens.

    The first row of operands has the number of arrivals, or with ``expects_bytes`` the bytes that the arrival
    announces.
    """
    last_address = 0
    record_address = 0
    arriving = mask
    arrived_lanes = 0
    # What the warp does after the arrival has a later time than the clock that the arrival releases.
    launch.time += 1
    owner = CtaRecord(cta.address)
    while mask:
        lane = lowest_bit(mask)
        mask &= mask - 1
        address = load64(warp.address + ADDRESSES + 8 * lane)
        count = load64(warp.address + OPERANDS + 8 * lane)
        # Lanes usually arrive at one barrier: it is looked up, and the warp's clock joined into it, once.
        if address != last_address:
            last_address = address
            arrived_lanes = 0
            owner = CtaRecord(owner_of(launch, cta, address))
            record_address = 0
            if owner.address:
                record_address = find_mbarrier(owner, address)
            if record_address:
                require_init(launch, cta, warp, owner, record_address, site, lane)
            if record_address and relaxed:
                release_fenced_to_clock(launch, cta, warp, clock_address(launch, owner, record_address))
            elif record_address:
                release_to_clock(launch, cta, warp, clock_address(launch, owner, record_address))
                if owner.address == cta.address:
                    note_partial_arrival(launch, cta, warp, MbarrierRecord(record_address), arriving)
            if record_address:
                bytes_expected = count if expects_bytes else 0
                record_barrier_event(launch, cta, warp.index, EventKind.ARRIVE, site, owner, address, bytes_expected)
        if not record_address:
            if report_missing(launch, cta, warp, site, lane, address):
                return 1
        else:
            state = load64(address)
            store64(warp.address + OPERANDS + TOKENS_OFFSET + 8 * lane, state)
            if expects_bytes and pending_overflows(state, count):
                return record_mbarrier_fault(launch, warp, TOO_MANY_BYTES, site, lane, address)
            # arrive.expect_tx is an expect_tx followed by one arrival (PTX ISA, mbarrier.arrive).
            if expects_bytes:
                state = expect_bytes(record_address, site, state, count)
                count = 1
            if count > state & ARRIVALS_MASK:
                has_all = owner.address == cta.address and state & ARRIVALS_MASK == 0
                detail = classify_excess_arrival(launch, warp, MbarrierRecord(record_address), has_all, arrived_lanes)
                return record_mbarrier_fault(launch, warp, detail, site, lane, address)
            arrived_lanes += 1
            if owner.address == cta.address:
                record = MbarrierRecord(record_address)
                record.last_arrival_id = access_id_of(site, warp.index * LANES + lane)
            state -= count
            # arrive_drop also lowers the count of all later phases.
            if drops_expected:
                state -= count << EXPECTED_SHIFT
            store_object(launch, owner, record_address, state)
    return 0


@native
def classify_excess_arrival(
    launch: LaunchRecord, warp: WarpRecord, record: MbarrierRecord, has_all: int, arrived_lanes: int
) -> int:
    """Return why a warp arrives more often than a phase needs, as far as that can be told.

    Args:
        has_all: Whether only bytes are pending at an mbarrier of the warp's own block.
        arrived_lanes: Lanes that have arrived by the same instruction.
    """
    if arrived_lanes:
        return SEVERAL_LANES
    if has_all and record.last_arrival_id and warp_of(record.last_arrival_id) == warp.index:
        set_conflict(launch, record.last_arrival_id, record.init_time)
        return ARRIVES_AGAIN
    return EXCESS_ARRIVAL


@native
def mbarrier_transact(
    launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, site: int, mask: int, completes: int
) -> int:
    """Execute expect_tx or complete_tx: the first row of operands has the bytes."""
    while mask:
        lane = lowest_bit(mask)
        mask &= mask - 1
        address = load64(warp.address + ADDRESSES + 8 * lane)
        count = load64(warp.address + OPERANDS + 8 * lane)
        owner = CtaRecord(owner_of(launch, cta, address))
        record_address = 0
        if owner.address:
            record_address = find_mbarrier(owner, address)
        if record_address:
            require_init(launch, cta, warp, owner, record_address, site, lane)
        if not record_address:
            if report_missing(launch, cta, warp, site, lane, address):
                return 1
        elif not completes and pending_overflows(load64(address), count):
            return record_mbarrier_fault(launch, warp, TOO_MANY_BYTES, site, lane, address)
        elif completes:
            complete_tx(launch, owner, address, count, cta, warp.index)
        else:
            store_object(launch, owner, record_address, expect_bytes(record_address, site, load64(address), count))
    return 0


@native
def complete_tx(launch: LaunchRecord, owner: CtaRecord, address: int, count: int, writer: CtaRecord, warp: int) -> int:
    """Complete the transaction of a copy at an mbarrier in the shared memory of ``owner``, after its last byte was
    written.

    The copy counts as work of a warp of the block ``writer``: a thread that waits for the mbarrier is ordered behind
    what that warp has written until now. Return 0 if there is no mbarrier at the address.
    """
    record_address = find_mbarrier(owner, address)
    if not record_address:
        return 0
    launch.time += 1
    clock = clock_address(launch, owner, record_address)
    # The writes of the copy are dated before this time, so whoever acquires it is ordered behind them.
    raise_to(clock + ROW_BYTES * (writer.block_number % launch.cluster_size) + 8 * warp, launch.time)
    store_object(launch, owner, record_address, add_pending_bytes(load64(address), 0 - count))
    return 1


@native
def pass_on_to_commit(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, owner: CtaRecord, address: int) -> None:
    """Join what a warp has acquired into the clock of an mbarrier of ``owner``, for its tcgen05.commit.

    The operations that a commit tracks are ordered behind what their thread has waited for before (PTX ISA,
    9.7.16.6.3), and the arrival behind these operations (9.7.16.6.4.2). A thread that has waited for the arrival may
    therefore overwrite an operand that a copy has brought, although it has not waited for that copy.
    """
    record_address = find_mbarrier(owner, address)
    if record_address:
        pass_on_clock(launch, cta, warp, clock_address(launch, owner, record_address))


@native
def arrive_for_tensor_core(launch: LaunchRecord, owner: CtaRecord, address: int, issuer: CtaRecord, warp: int) -> int:
    """Arrive once at an mbarrier of ``owner``, for a tcgen05.commit of a warp of the block ``issuer``.

    Return 0 if there is no mbarrier at the address, or if its phase needs no arrival.
    """
    record_address = find_mbarrier(owner, address)
    if not record_address or load64(address) & ARRIVALS_MASK == 0:
        return 0
    launch.time += 1
    # As for a copy (complete_tx): the products are dated before this time.
    clock = clock_address(launch, owner, record_address)
    raise_to(clock + ROW_BYTES * (issuer.block_number % launch.cluster_size) + 8 * warp, launch.time)
    store_object(launch, owner, record_address, load64(address) - 1)
    return 1


@native
def mbarrier_wait(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, site: int, mask: int, relaxed: int) -> int:
    """Block the lanes whose phase is not complete: the first row of operands has its parity."""
    blocked = 0
    last_address = 0
    joined_record = 0
    record_address = 0
    remaining = mask
    while remaining:
        lane = lowest_bit(remaining)
        remaining &= remaining - 1
        address = load64(warp.address + ADDRESSES + 8 * lane)
        if address != last_address:
            last_address = address
            record_address = find_mbarrier(cta, address)
            if record_address:
                require_init(launch, cta, warp, cta, record_address, site, lane)
        if not record_address:
            if report_missing(launch, cta, warp, site, lane, address):
                return 1
            # A deferred fault explains the missing mbarrier. The lane waits until that fault is reported.
            blocked |= 1 << lane
        # A wait for parity p ends with the phase of parity p. As long as that phase lasts, the object has the parity p.
        elif (load64(address) >> PHASE_BIT ^ load64(warp.address + OPERANDS + 8 * lane)) & 1 == 0:
            blocked |= 1 << lane
            warp.awaited_mbarrier = address
        elif record_address != joined_record:
            completed = clock_address(launch, cta, record_address) + ROW_BYTES * launch.cluster_size
            if relaxed and cta.relaxed_clock:
                # With tcgen05.fence::after_thread_sync, a relaxed wait orders tcgen05 alone (PTX ISA, 9.7.16.6.4.2).
                join_clock(launch, cta, warp, completed, cta.relaxed_clock)
            elif not relaxed:
                acquire_clock(launch, cta, warp, completed)
                note_partial_wait(warp, MbarrierRecord(record_address))
            end_tracked(launch, cta, MbarrierRecord(record_address))
            joined_record = record_address
    warp.blocked_lanes = blocked
    if blocked != mask:
        passed = load64(warp.address + ADDRESSES + 8 * lowest_bit(mask & ~blocked))
        record_barrier_event(launch, cta, warp.index, EventKind.PASS, site, cta, passed, 0)
        counts = CountsRecord(launch.counts + site * CountsRecord.size)
        counts.requests += 1
        counts.lanes += count_bits(mask & ~blocked)
        counts.wavefronts += 1
        counts.least += 1
    return 0


@native
def store_object(launch: LaunchRecord, owner: CtaRecord, record_address: int, state: int) -> None:
    """Store the object of an mbarrier, and begin its next phase if nothing is pending."""
    record = MbarrierRecord(record_address)
    # The time advances even within a phase: suspended warps try again when it has changed.
    launch.time += 1
    if state & ARRIVALS_MASK == 0 and state >> PENDING_SHIFT & PENDING_MASK == 0:
        state = state ^ 1 << PHASE_BIT | state >> EXPECTED_SHIFT & ARRIVALS_MASK
        # The parity flips, and the next phase's arrivals are pending. The clock of the arrivals becomes the clock of
        # the last complete phase, which waiting warps acquire.
        record.completed_phases += 1
        record.expected_bytes = 0
        clock = clock_address(launch, owner, record_address)
        words = 32 * launch.cluster_size
        for word in range(words):
            store64(clock + 8 * (words + word), load64(clock + 8 * word))
    store64(record.object_address, state)


@native
def require_init(
    launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, owner: CtaRecord, record_address: int, site: int, lane: int
) -> None:
    """Defer a race if this use of an mbarrier is not ordered behind its initialization: arrivals since would hide
    it.
    """
    record = MbarrierRecord(record_address)
    thread = warp.index * LANES + lane
    if is_unordered(launch, cta, owner.block_began, warp.index, thread_of(record.init_id), record.init_time, thread):
        set_conflict(launch, record.init_id, record.init_time)
        defer_fault(launch, cta, warp, RACE, site, lane, record.object_address, 8)


@native
def clock_address(launch: LaunchRecord, cta: CtaRecord, record_address: int) -> int:
    """Return the address of an mbarrier's two vector clocks: they follow those of the cluster's barrier."""
    record_index = (record_address - cta.mbarriers) // MbarrierRecord.size
    return cta.barrier_clocks + 2 * ROW_BYTES * launch.cluster_size * (record_index + 1)


@native
def report_missing(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, site: int, lane: int, address: int) -> int:
    """Fault on an address that holds no mbarrier, unless a deferred fault explains it."""
    if cta.deferred_address:
        return 0
    return record_mbarrier_fault(launch, warp, NOT_INITIALIZED, site, lane, address)


@native
def record_mbarrier_fault(
    launch: LaunchRecord, warp: WarpRecord, detail: int, site: int, lane: int, address: int
) -> int:
    """Record which rule of mbarriers is broken. Return 1."""
    launch.fault_detail = detail
    return record_fault(launch, warp, BARRIER_FAULT, site, lane, address)
