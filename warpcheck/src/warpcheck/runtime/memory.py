"""Check and count every access to memory: is it in bounds, is the memory written, does it race, what does it cost.

Generated code calls ``access`` once for each memory instruction of a warp, before the bytes are touched, with the 32
addresses in the warp's record and the active lanes in ``mask``. It returns 0, or 1 after recording a fault in the
launch's record. The functions are compiled as they stand here; see ``native``.

A race, and a read of unwritten shared memory, are deferred faults: they end the launch at the next barrier or at the
end of the block. By then it is clear whether a thread skipped the barrier, or whether another thread writes the memory.
"""

from __future__ import annotations

from typing import NamedTuple

from warpcheck.errors import FAULT_KINDS, FaultKind
from warpcheck.layout import LANES, Access, AtomicStrategy, Space
from warpcheck.native import count_bits, load64, lowest_bit, native, noinline, offset_bits, store64, unlikely
from warpcheck.runtime.access_extent import record_reach
from warpcheck.runtime.access_history import (
    UNORDERED,
    Granule,
    entry_of,
    is_strong,
    site_of,
    thread_of,
)
from warpcheck.runtime.address_spaces import find_buffer, is_read_only, local_base, owner_of, space_of
from warpcheck.runtime.byte_states import UNREADABLE_BITS, check_states, is_pending, load_bytes
from warpcheck.runtime.cp_async_sources import check_source_overwrite
from warpcheck.runtime.deferred_faults import (
    RACE,
    UNINITIALIZED,
    defer_fault,
    find_pending_copy,
    is_reduction,
    turn_into_race,
)
from warpcheck.runtime.fast_path import EntryRange, record_common_reads, record_common_writes
from warpcheck.runtime.happens_before import is_before_wait
from warpcheck.runtime.memory_transactions import (
    count_addresses,
    count_atomic_sectors,
    count_same_address,
    count_sectors_within,
    count_shared,
    is_in_registers,
    lanes_of_block,
    run_starts,
    scattered,
)
from warpcheck.runtime.polling import count_poll, poll, repeats_last_poll
from warpcheck.runtime.races import check_race
from warpcheck.runtime.records import (
    SAMPLE,
    WARP,
    BufferRecord,
    CountsRecord,
    CtaRecord,
    LaunchRecord,
    SampleRecord,
    WarpRecord,
    field_offset,
)
from warpcheck.runtime.wgmma_operands import find_wgmma_read

__all__ = [
    "ADDRESSES",
    "OPERANDS",
    "OUT_OF_BOUNDS",
    "SAMPLED",
    "MemoryOperation",
    "Segment",
    "access",
    "buffer_segment",
    "record_fault",
    "shared_segment",
]

OUT_OF_BOUNDS = FAULT_KINDS.index(FaultKind.OUT_OF_BOUNDS)
MISALIGNED = FAULT_KINDS.index(FaultKind.MISALIGNED)
SAMPLED = field_offset(SAMPLE, "addresses")
ADDRESSES, BANK_WORDS, OPERANDS = (field_offset(WARP, name) for name in ("addresses", "bank_words", "operands"))


# Whether the bytes of an access may be read: not before something has written them, or a copy to them is complete.
READABLE, NEVER_WRITTEN, IN_FLIGHT = range(3)

STORE = int(Access.STORE)

# Lanes whose first bytes are less than this far behind those of lane 0 are checked together; see `are_all_common`.
NEAR = 1 << 10

# What a compare-and-swap of a word that stands for one of half a word accesses.
WHOLE_WORD, LOWER_HALF, UPPER_HALF = range(3)


class MemoryOperation(NamedTuple):
    """What an instruction does to memory. All of it is known when a kernel is compiled, so the check is specialized.

    Attributes:
        named: The state space that the instruction names, GENERIC if none.
        kind: LOAD, STORE or ATOMIC.
        size: Bytes of a lane.
        parts: Elements of a vector access.
        ordering: 0 for a plain access, STRONG, BLOCK_STRONG, VOLATILE or UNORDERED; see ``access_history``.
        partial: Whether lanes access fewer bytes: the first row of operands has their number.
        drops: Whether some lanes drop what they load; ``warp.lanes_using_load`` has the others.
        half: Whether one half of the word is enough: a compare-and-swap of 32 bits that stands for one of 16.
        spins: Whether the access is repeated in a loop until its value ends the loop.
        overwrites: Whether it is an atomic exchange whose result nothing reads: it may be the first write.
    """

    named: int
    kind: int
    size: int
    parts: int
    ordering: int
    partial: int
    drops: int
    half: int
    spins: int
    overwrites: int


class Segment(NamedTuple):
    """The memory that an address belongs to: a buffer, or the parameters, or the shared or local memory of a thread.

    Attributes:
        floor: Accesses before this time cannot race: earlier launches; in shared memory, earlier blocks.
        state: The address of the states of its bytes, 0 if they always may be read.
        history: The address of its history, 0 if it has none: then no access to it races.
        granule: The binary logarithm of the bytes of an entry of the history.
        buffer: The record of the buffer, or of the last buffer that was accessed: a guess for the next address.
    """

    space: int
    start: int
    end: int
    floor: int
    state: int
    history: int
    granule: int
    buffer: int


class LaneAccess(NamedTuple):
    """The access of one lane by the instruction ``site``.

    Attributes:
        mask: All lanes that execute the instruction.
        first: The first byte that counts. This is not ``address`` where only the upper half of a word counts.
        size: The bytes that count.
    """

    site: int
    mask: int
    lane: int
    address: int
    first: int
    size: int


@native
def access(
    launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, site: int, mask: int, operation: MemoryOperation
) -> int:
    """Check and count one access of a warp by the instruction ``site``. Return whether it is a fault."""
    if mask == 0:
        return 0
    addresses = warp.address + ADDRESSES
    counts = CountsRecord(launch.counts + site * CountsRecord.size)
    is_in_registers_already = is_in_registers(counts, addresses, mask, operation.size)
    # The lanes of a generic access may begin in local memory, of which nothing is shown.
    is_first = counts.requests == 0 or (
        operation.named == Space.GENERIC and counts.sectors == 0 and counts.wavefronts == 0
    )
    if is_first and not is_in_registers_already:
        record_sample(launch, warp, site, mask, max(counts.width, 1))
    touched_bytes = operation.size
    remaining = mask
    # The memory that the previous lane accessed; none yet.
    segment = Segment(operation.named, 0, 0, 0, 0, 0, 0, launch.buffers)
    is_plain = not (operation.ordering or operation.partial or operation.drops or operation.half)
    spread = offset_bits(addresses)
    # Plain loads of one address by many lanes are common (broadcasts), and checking two of them is enough.
    if operation.kind == Access.LOAD and is_plain:
        remaining = first_two_readers(addresses, mask)
    while remaining:
        lane = lowest_bit(remaining)
        address = load64(addresses + 8 * lane)
        first = address
        if operation.partial:
            touched_bytes = load64(warp.address + OPERANDS + 8 * lane)
        # Most lanes access the same memory as the lane before, so it is resolved again only outside of it. Local memory
        # differs for each lane, and a half word may be in another buffer than its word.
        if (
            operation.half
            or segment.space == Space.LOCAL
            or address < segment.start
            or address > segment.end - touched_bytes
        ):
            segment = resolve(launch, cta, warp, operation.named, lane, address, segment.buffer)
            # A generic address may lead to a constant or a parameter. The buffer of either is in bounds, but read-only.
            if operation.kind != Access.LOAD and segment.space == Space.GLOBAL:
                buffer = BufferRecord(segment.buffer)
                buffer.written = 1
                if buffer.read_only or is_read_only(launch, address):
                    return record_fault(launch, warp, OUT_OF_BOUNDS, site, lane, address)
            if operation.half:
                half = accessed_half(launch, warp, operation, segment, lane, address)
                touched_bytes = operation.size >> (half != WHOLE_WORD)
                if half == UPPER_HALF:
                    first = address + touched_bytes
                    segment = buffer_segment(launch, segment.space, find_buffer(launch, segment.buffer, first))
            # The empty segment of an address that belongs to nothing fails here, too.
            if first < segment.start or first + touched_bytes > segment.end:
                return record_fault(launch, warp, OUT_OF_BOUNDS, site, lane, address)
        # PTX ISA, "Addresses as operands": an access is aligned to its size, a vector access to that of the vector.
        if address & (operation.size - 1):
            return record_fault(launch, warp, MISALIGNED, site, lane, address)
        # From this lane on, most accesses are of the common cases of `fast_path`: a small loop checks and records them.
        uncommon = remaining
        if is_plain and operation.kind != Access.ATOMIC and segment.state and segment.space != Space.LOCAL:
            uncommon = skip_common_accesses(launch, cta, warp, site, segment, spread, remaining, operation)
        if unlikely(uncommon == remaining):
            # The common cases did not take this lane. It takes the full check, and the loop continues behind it.
            uncommon &= uncommon - 1
            if segment.state and (not operation.drops or warp.lanes_using_load >> lane & 1):
                lane_access = LaneAccess(site, mask, lane, address, first, touched_bytes)
                state = check_state(launch, cta, warp, operation, segment, lane_access)
                # A read of unwritten global memory is a fault at once. In shared memory the writer may still come, and
                # then it is a race: the fault is deferred.
                if state != READABLE and segment.space != Space.SHARED:
                    return record_fault(launch, warp, UNINITIALIZED, site, lane, address)
                check_order(launch, cta, warp, operation, segment, lane_access, state == IN_FLIGHT)
                if state != READABLE:
                    defer(launch, cta, warp, UNINITIALIZED, lane_access)
        remaining = uncommon
    # A cp.async reads global memory at any time until its wait, so a store to its source changes what is copied.
    if operation.kind != Access.LOAD and operation.named != Space.SHARED and cta.copies_in_flight:
        check_source_overwrite(launch, cta, warp, site, mask, operation.size)
    if launch.sampled_blocks and operation.named != Space.SHARED:
        record_reach(launch, addresses, mask, operation.size)
    # A wait at an mbarrier is counted when it is over.
    is_wait = operation.ordering == UNORDERED and operation.kind == Access.LOAD
    if not (is_in_registers_already or is_wait):
        count_request(launch, cta, warp, site, mask, spread, operation, segment.space)
    return 0


@native
def resolve(
    launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, named: int, lane: int, address: int, buffer: int
) -> Segment:
    """Return the memory that an address belongs to, or an empty segment if it belongs to none.

    Args:
        named: The state space that the instruction names.
        buffer: The record of the buffer that is tried first.
    """
    space = named
    if named == Space.GENERIC:
        space = space_of(launch, cta, address)
    if space == Space.CLUSTER:
        peer = CtaRecord(owner_of(launch, cta, address))
        # No block of the cluster has this address. The empty segment makes it out of bounds.
        if not peer.address:
            return Segment(Space.SHARED, 0, 0, 0, 0, 0, 0, buffer)
        return shared_segment(launch, peer, buffer)
    if space == Space.SHARED:
        return shared_segment(launch, cta, buffer)
    if space == Space.LOCAL:
        start = local_base(launch, cta, warp, lane)
        # Local memory has states, but no history: only its own thread can access it, so nothing races there.
        state = cta.local_state + start - cta.local
        return Segment(space, start, start + launch.local_bytes, 0, state, 0, 0, buffer)
    if space == Space.PARAM:
        return Segment(space, launch.params, launch.params + launch.param_bytes, 0, 0, 0, 0, buffer)
    return buffer_segment(launch, space, find_buffer(launch, buffer, address))


@native
def shared_segment(launch: LaunchRecord, cta: CtaRecord, buffer: int) -> Segment:
    """Return the shared memory of a block."""
    return Segment(
        space=Space.SHARED,
        start=cta.shared,
        end=cta.shared + launch.shared_bytes,
        floor=cta.block_began,
        state=cta.shared_state,
        history=cta.shared_history,
        granule=launch.shared_granule,
        buffer=buffer,
    )


@native
def buffer_segment(launch: LaunchRecord, space: int, buffer: int) -> Segment:
    """Return the memory of a buffer, by the address of its record."""
    record = BufferRecord(buffer)
    return Segment(
        space=space,
        start=record.start,
        end=record.start + record.bytes,
        floor=launch.overlap_began,
        state=record.state,
        history=record.history,
        granule=record.granule,
        buffer=buffer,
    )


@native
def accessed_half(
    launch: LaunchRecord, warp: WarpRecord, operation: MemoryOperation, segment: Segment, lane: int, address: int
) -> int:
    """Return which half counts of a word that stands for a half.

    A 16-bit compare-and-swap is one of the aligned 32-bit word. At the end of a buffer the other half may be outside of
    it, which is no fault as long as that half is left unchanged.
    """
    middle = address + operation.size // 2
    if middle == segment.end and leaves_half_unchanged(warp, operation.kind, lane, 16):
        return LOWER_HALF
    if address + operation.size > segment.end and segment.space != Space.SHARED:
        following = BufferRecord(find_buffer(launch, segment.buffer, middle))
        if following.start == middle and leaves_half_unchanged(warp, operation.kind, lane, 0):
            return UPPER_HALF
    return WHOLE_WORD


@native
def leaves_half_unchanged(warp: WarpRecord, kind: int, lane: int, bit: int) -> int:
    """Return whether a load, or a compare-and-swap of a word, leaves the half from ``bit`` on as it is."""
    # The two rows of operands, 256 bytes apart, are the value to compare with and the new value. If they agree in a
    # half, a successful swap leaves that half unchanged.
    row = warp.address + OPERANDS + 8 * lane
    return kind == Access.LOAD or not (load64(row) ^ load64(row + 256)) >> bit & 0xFFFF


@native
def check_state(
    launch: LaunchRecord,
    cta: CtaRecord,
    warp: WarpRecord,
    operation: MemoryOperation,
    segment: Segment,
    lane_access: LaneAccess,
) -> int:
    """Return whether the bytes may be read, for an access that reads; a write marks them as written."""
    offset = lane_access.first - segment.start
    state = segment.state + offset
    granule_index = offset >> segment.granule
    # A copy in flight may land before this store or after it, and either value may remain.
    if operation.kind == Access.STORE and segment.history and is_pending(state, lane_access.size):
        find_pending_copy(launch, state, lane_access.size, segment.history, granule_index)
        defer(launch, cta, warp, RACE, lane_access)
    kind = operation.kind
    if operation.overwrites:
        kind = STORE
    if check_states(state, lane_access.size, kind):
        return READABLE
    if not find_pending_copy(launch, state, lane_access.size, segment.history, granule_index):
        return NEVER_WRITTEN
    # Several reductions in flight may write the same bytes.
    return READABLE if operation.kind == Access.ATOMIC and is_reduction(launch) else IN_FLIGHT


@native
def skip_common_accesses(
    launch: LaunchRecord,
    cta: CtaRecord,
    warp: WarpRecord,
    site: int,
    segment: Segment,
    spread: int,
    lanes: int,
    operation: MemoryOperation,
) -> int:
    """Check and record the plain accesses of ``lanes`` to a segment, up to the first that is not one of the common
    cases of `fast_path`. Return the lanes that are left.

    This does the work of `check_state` and `check_order`. For the lanes that are left, nothing has changed that these
    would not change.

    Args:
        spread: The `offset_bits` of the addresses.
    """
    addresses = warp.address + ADDRESSES
    is_read_by_wgmma = segment.space == Space.SHARED and cta.reads_in_flight
    if cta.mbarriers or (operation.kind == Access.STORE and (cta.deferred_address or is_read_by_wgmma)):
        return lanes
    common = lanes
    # With few lanes left, as of a broadcast, checking each of them takes less.
    if count_bits(lanes) <= 4 or not are_all_common(segment, load64(addresses), spread, operation):
        common = leading_common_lanes(segment, addresses, lanes, operation)
    unrecorded = 0
    if segment.history and common:
        entries = EntryRange(segment.history, segment.start, segment.granule, operation.size, segment.floor)
        if operation.kind == Access.LOAD:
            unrecorded = record_common_reads(launch, cta, warp, site, common, entries)
        else:
            unrecorded = record_common_writes(launch, cta, warp, site, common, entries)
    if operation.kind == Access.STORE:
        recorded = common & ~unrecorded
        while recorded:
            state = segment.state - segment.start + load64(addresses + 8 * lowest_bit(recorded))
            check_states(state, operation.size, Access.STORE)
            recorded &= recorded - 1
    return unrecorded | lanes & ~common


@native
def leading_common_lanes(segment: Segment, addresses: int, lanes: int, operation: MemoryOperation) -> int:
    """Return the first of the lanes, up to one for which `is_common_access` does not hold."""
    remaining = lanes
    while remaining and is_common_access(segment, load64(addresses + 8 * lowest_bit(remaining)), operation):
        remaining &= remaining - 1
    return lanes & ~remaining


@native
def are_all_common(segment: Segment, base: int, spread: int, operation: MemoryOperation) -> int:
    """Return whether `is_common_access` is certain to hold for all lanes, if they are near to each other.

    Lanes that are not active count, too, and so do the bytes between those of two lanes.

    Args:
        base: The address of lane 0.
        spread: The `offset_bits` of the addresses. All lanes are in the ``spread + operation.size`` bytes from the base
            on. As a bitwise or, it has the low bits that the distance of any lane from the base has.
    """
    extent = spread + operation.size + 31 & -32  # the loop below has steps of 32 bytes
    is_inside = base >= segment.start and base + extent <= segment.end
    if spread < 0 or spread >= NEAR or not is_inside or (base | spread) & (operation.size - 1):
        return 0
    first = segment.state + base - segment.start
    bits = 0
    for state in range(first, first + extent, 32):
        for word in range(state, state + 32, 8):
            states = load64(word)
            if operation.kind == Access.STORE:
                states &= states >> 1  # see `is_pending`
            bits |= states
    return bits & UNREADABLE_BITS == 0


@native
def is_common_access(segment: Segment, address: int, operation: MemoryOperation) -> int:
    """Return whether an access is in bounds, aligned, and to bytes that may be read, or that no copy has yet to write
    if it is a store.
    """
    if address < segment.start or address > segment.end - operation.size or address & (operation.size - 1):
        return 0
    state = segment.state + address - segment.start
    if operation.kind == Access.LOAD:
        return check_states(state, operation.size, Access.LOAD)
    return not is_pending(state, operation.size)


@native
def check_order(
    launch: LaunchRecord,
    cta: CtaRecord,
    warp: WarpRecord,
    operation: MemoryOperation,
    segment: Segment,
    lane_access: LaneAccess,
    is_in_flight: int,
) -> None:
    """Defer a race if the access is not ordered behind another one.

    Args:
        is_in_flight: Whether a copy to the bytes is in flight: it has a fault of its own.
    """
    # A wgmma in flight reads shared memory until it is waited for, whatever the history says.
    if operation.kind != Access.LOAD and segment.space == Space.SHARED and cta.reads_in_flight:
        launch.conflict_id = find_wgmma_read(cta, lane_access.address, lane_access.size)
        launch.conflict_time = launch.time
        if launch.conflict_id:
            defer(launch, cta, warp, RACE, lane_access)
    # An earlier read has found bytes unwritten. If this store writes them, the two race, and nobody forgot to write.
    if cta.deferred_address and operation.kind == Access.STORE:
        turn_into_race(launch, cta, warp, lane_access.site, lane_access.lane, lane_access.address, lane_access.size)
    # Happens-before, granule by granule.
    if segment.history and not is_in_flight:
        offset = lane_access.first - segment.start
        last_granule = offset + lane_access.size - 1 >> segment.granule
        for granule_index in range(offset >> segment.granule, last_granule + 1):
            granule = Granule(segment.floor, segment.history, granule_index)
            lane = lane_access.lane
            site = lane_access.site
            races = check_race(launch, cta, granule, warp.index, lane, site, operation.kind, operation.ordering)
            if races and not (
                is_harmless_store(launch, cta, warp, operation, segment.space, lane_access)
                and is_write_known(launch, segment, granule)
            ):
                defer(launch, cta, warp, RACE, lane_access)


@native
def defer(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, kind: int, lane_access: LaneAccess) -> None:
    """Keep a fault of the access for the next barrier."""
    defer_fault(launch, cta, warp, kind, lane_access.site, lane_access.lane, lane_access.address, lane_access.size)


@native
def first_two_readers(addresses: int, mask: int) -> int:
    """Return the active lanes without those whose two predecessors have the same address: their reads are checked
    already.

    The history keeps two readers: a writer that races with some of them races with one of these two.
    """
    first = run_starts(addresses, mask, 0)
    return mask & (first | first << 1)


@noinline
def record_sample(launch: LaunchRecord, warp: WarpRecord, site: int, mask: int, width: int) -> None:
    """Keep the addresses of one request, for pictures: where the ``width`` bytes of a lane begin."""
    sample = SampleRecord(launch.samples + site * SampleRecord.size)
    sample.mask = mask
    for lane in range(LANES):
        store64(sample.address + SAMPLED + 8 * lane, load64(warp.address + ADDRESSES + 8 * lane) & -width)


@noinline
def is_harmless_store(
    launch: LaunchRecord,
    cta: CtaRecord,
    warp: WarpRecord,
    operation: MemoryOperation,
    space: int,
    lane_access: LaneAccess,
) -> int:
    """Return whether a store writes the value that is there already, or that the other lane of this instruction
    writes.

    Triton's reductions let all lanes store the result of their warp, and all warps that hold the same tile store all of
    it. Such values may differ by rounding where the operation does not commute to the last bit: each of them is a
    correct result. Only Triton's compiler writes to that memory.

    In a sample of the blocks, blocks that are far apart must not write to one element, whatever the value.
    """
    if operation.kind != Access.STORE or launch.conflict_time < launch.stretch_began:
        return 0
    if launch.compiler_scratch and space == Space.SHARED and site_of(launch.conflict_id) == lane_access.site:
        return 1
    lane = lane_access.lane
    address = lane_access.address
    other_thread = thread_of(launch.conflict_id)
    partner = other_thread & 31
    is_same_instruction = 0
    if launch.conflict_time >= cta.turn_began and other_thread >> 5 == warp.index and lane_access.mask >> partner & 1:
        is_same_instruction = partner != lane and load64(warp.address + ADDRESSES + 8 * partner) == address
    # A row of operands has 8 bytes for each of 32 lanes. A store of a vector has a row for each element.
    width = operation.size // operation.parts
    for part in range(operation.parts):
        row = warp.address + OPERANDS + 256 * part
        other_value = load_bytes(address + part * width, width)
        if is_same_instruction:
            other_value = load64(row + 8 * partner)
        if load64(row + 8 * lane) != other_value:
            return 0
    return 1


@native
def is_write_known(launch: LaunchRecord, segment: Segment, granule: Granule) -> int:
    """Return whether a write by the blocks of a worker is in its history, where a harmless store is to a granule.

    A store that races is not recorded. In the history of a worker there has to be a write, at which other workers find
    that the blocks of this one have written the granule; see ``history_merge``.
    """
    return not launch.is_worker or segment.space == Space.SHARED or load64(entry_of(granule)) != 0


@native
def count_request(
    launch: LaunchRecord,
    cta: CtaRecord,
    warp: WarpRecord,
    site: int,
    mask: int,
    spread: int,
    operation: MemoryOperation,
    space: int,
) -> None:
    """Count an access as ncu would. ``spread`` is the `offset_bits` of the addresses."""
    counts = CountsRecord(launch.counts + site * CountsRecord.size)
    lanes = count_bits(mask)
    counts.requests += 1
    counts.lanes += lanes
    if operation.kind == Access.ATOMIC and space != Space.LOCAL:
        same_address = count_same_address(warp.address + ADDRESSES, mask)
        # ptxas has combined the operation of all lanes: one lane executes it.
        if counts.atomic_strategy == AtomicStrategy.ELECTED and same_address == lanes:
            mask = mask & -mask
            same_address = 1
        counts.same_address += same_address
    is_counted = 1
    if space == Space.SHARED:
        is_counted = count_shared_request(launch, cta, warp, site, mask, spread, operation)
    elif operation.kind == Access.ATOMIC and space != Space.LOCAL:
        counts.sectors += count_atomic_sectors(warp.address + ADDRESSES, mask)
        poll(launch, cta, warp, warp.address + ADDRESSES, mask, operation.ordering, operation.spins)
    elif space == Space.CONST:
        counts.least += count_addresses(warp.address + ADDRESSES, mask)
    elif space == Space.GLOBAL:
        is_counted = count_global_request(launch, cta, warp, site, mask, spread, operation)
    if not is_counted:
        counts.requests -= 1
        counts.lanes -= lanes


@native
def count_shared_request(
    launch: LaunchRecord,
    cta: CtaRecord,
    warp: WarpRecord,
    site: int,
    mask: int,
    spread: int,
    operation: MemoryOperation,
) -> int:
    """Count the wavefronts of a request to shared memory. Return whether it counts as one."""
    addresses = warp.address + ADDRESSES
    counts = CountsRecord(launch.counts + site * CountsRecord.size)
    is_atomic = operation.kind == Access.ATOMIC
    if is_strong(operation.ordering) and operation.kind == Access.LOAD:
        count_poll(launch, cta, warp, addresses, mask, operation.spins)
        # How often a poll is repeated depends on the schedule, so repetitions are not counted.
        if operation.spins and repeats_last_poll(warp, site, addresses, mask):
            return 0
    own_lanes = mask
    if launch.cluster_size > 1:
        own_lanes = lanes_of_block(addresses, mask, cta.shared)
    if own_lanes:
        width = max(counts.width, operation.size)
        is_in_one_line = spread >= 0 and (load64(addresses) & 127) + spread < 128
        if width <= 4 and is_in_one_line and not is_atomic:
            # In 128 bytes that are aligned, every word has a bank of its own.
            counts.wavefronts += 1
            counts.least += 1
        else:
            count_shared(counts, addresses, own_lanes, width, is_atomic, warp.address + BANK_WORDS)
    if launch.cluster_size > 1 and (is_atomic or operation.ordering) and operation.ordering != UNORDERED:
        poll(launch, cta, warp, addresses, mask, operation.ordering, operation.spins)
    # What goes to another block is not counted as shared memory, by ncu either.
    return own_lanes != 0


@native
def count_global_request(
    launch: LaunchRecord,
    cta: CtaRecord,
    warp: WarpRecord,
    site: int,
    mask: int,
    spread: int,
    operation: MemoryOperation,
) -> int:
    """Count the sectors of a load or a store of global memory. Return whether it counts as a request."""
    addresses = warp.address + ADDRESSES
    counts = CountsRecord(launch.counts + site * CountsRecord.size)
    if operation.ordering:
        poll(launch, cta, warp, addresses, mask, operation.ordering, operation.spins)
        if operation.spins and repeats_last_poll(warp, site, addresses, mask):
            return 0
    sectors = count_sectors_within(addresses, mask, spread)
    counts.sectors += sectors
    if is_before_wait(cta, warp):
        launch.sectors_before_wait += sectors
    counts.scattered += scattered(sectors, count_bits(mask) * max(counts.width, operation.size))
    return 1


@native
def record_fault(launch: LaunchRecord, warp: WarpRecord, kind: int, site: int, lane: int, address: int) -> int:
    """Record a fault in the launch's record. Return 1."""
    launch.fault_kind = kind
    launch.fault_site = site
    launch.fault_lane = lane
    launch.fault_warp = warp.index
    launch.fault_address = address
    return 1
