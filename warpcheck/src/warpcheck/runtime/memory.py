"""Check and count every access to memory: is it in bounds, is the memory written, does it race, what does it cost.

Generated code calls ``access`` once for each memory instruction of a warp, before the bytes are touched, with the 32
addresses in the warp's record and the active lanes in ``mask``. It returns 0, or 1 after recording a fault in the
launch's record. The functions are compiled as they stand here; see ``native``.

A race, and a read of unwritten shared memory, are deferred faults: they end the launch at the next barrier or at the
end of the block. By then it is clear whether a thread skipped the barrier, or whether another thread writes the memory.
"""

from __future__ import annotations

from warpcheck.errors import FAULT_KINDS, FaultKind
from warpcheck.layout import LANES, Access, AtomicStrategy, Space
from warpcheck.native import count_bits, load64, lowest_bit, native, noinline, store64
from warpcheck.runtime.access_extent import record_reach
from warpcheck.runtime.access_history import STRONG, UNORDERED, site_of, thread_of
from warpcheck.runtime.address_spaces import find_buffer, is_read_only, local_base, owner_of, space_of
from warpcheck.runtime.byte_states import check_states, is_pending, load_bytes
from warpcheck.runtime.cp_async_sources import check_source_overwrite
from warpcheck.runtime.deferred_faults import (
    RACE,
    UNINITIALIZED,
    defer_fault,
    find_pending_copy,
    is_reduction,
    turn_into_race,
)
from warpcheck.runtime.memory_transactions import (
    count_atomic_sectors,
    count_same_address,
    count_sectors,
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

__all__ = ["ADDRESSES", "OPERANDS", "OUT_OF_BOUNDS", "SAMPLED", "access", "record_fault"]

OUT_OF_BOUNDS = FAULT_KINDS.index(FaultKind.OUT_OF_BOUNDS)
MISALIGNED = FAULT_KINDS.index(FaultKind.MISALIGNED)
SAMPLED = field_offset(SAMPLE, "addresses")
ADDRESSES, BANK_WORDS, OPERANDS = (field_offset(WARP, name) for name in ("addresses", "bank_words", "operands"))


@native
def access(
    launch: LaunchRecord,
    cta: CtaRecord,
    warp: WarpRecord,
    site: int,
    mask: int,
    named: int,
    kind: int,
    size: int,
    parts: int,
    ordering: int,
    partial: int,
    drops: int,
    half: int,
    spins: int,
) -> int:
    """Check and count one access of a warp by the instruction ``site``. Return whether it is a fault.

    The parameters from ``named`` on are constants when a kernel is compiled.

    Args:
        named: The state space that the instruction names, GENERIC if none.
        kind: LOAD, STORE or ATOMIC.
        size: Bytes of a lane.
        parts: Elements of a vector access.
        strong: 0 for a plain access, STRONG, VOLATILE or UNORDERED; see ``access_history``.
        partial: Whether lanes access fewer bytes: the first row of operands has their number.
        drops: Whether some lanes drop what they load; ``warp.lanes_using_load`` has the others.
        half: Whether one half of the word is enough: a compare-and-swap of 32 bits that stands for one of 16.
        spins: Whether the access is repeated in a loop until its value ends the loop.
    """
    if mask == 0:
        return 0
    counts = CountsRecord(launch.counts + site * CountsRecord.size)
    width = max(counts.width, size)
    is_in_registers_already = is_in_registers(counts, warp.address + ADDRESSES, mask, size)
    # The lanes of a generic access may begin in local memory, of which nothing is shown.
    is_first = counts.requests == 0 or (named == Space.GENERIC and counts.sectors == 0 and counts.wavefronts == 0)
    if is_first and not is_in_registers_already:
        record_sample(launch, warp, site, mask, max(counts.width, 1))
    # What the previous lane's address resolved to; nothing yet.
    space = named
    buffer = launch.buffers
    touched_bytes = size
    remaining = mask
    start = 0
    end = 0
    floor = 0
    state = 0
    history = 0
    granule = 0
    # Plain loads of one address by many lanes are common (broadcasts), and checking two of them is enough.
    if kind == Access.LOAD and not (ordering or partial or drops or half):
        remaining = first_two_readers(warp.address + ADDRESSES, mask)
    while remaining:
        lane = lowest_bit(remaining)
        remaining &= remaining - 1
        address = load64(warp.address + ADDRESSES + 8 * lane)
        if partial:
            touched_bytes = load64(warp.address + OPERANDS + 8 * lane)
        offset = address - start
        # [start, end) is the memory that the previous lane accessed, with its state and history. Most lanes access the
        # same, so it is resolved again only outside of it. Local memory differs for each lane; half changes the bounds.
        if half or space == Space.LOCAL or address < start or address > end - touched_bytes:
            if named == Space.GENERIC:
                space = space_of(launch, cta, address)
            if named == Space.CLUSTER or space == Space.CLUSTER:
                peer = CtaRecord(owner_of(launch, cta, address))
                if not peer.address:
                    return record_fault(launch, warp, OUT_OF_BOUNDS, site, lane, address)
                start = peer.shared
                extent = launch.shared_bytes
                floor = peer.block_began
                state = peer.shared_state
                history = peer.shared_history
                granule = launch.shared_granule
                space = Space.SHARED
            elif space == Space.SHARED:
                start = cta.shared
                extent = launch.shared_bytes
                floor = cta.block_began
                state = cta.shared_state
                history = cta.shared_history
                granule = launch.shared_granule
            elif space == Space.LOCAL:
                start = local_base(launch, cta, warp, lane)
                extent = launch.local_bytes
                floor = 0
                state = cta.local_state + start - cta.local
                history = 0
                granule = 0
            elif space == Space.PARAM:
                start = launch.params
                extent = launch.param_bytes
                floor = 0
                state = 0
                history = 0
                granule = 0
            else:
                if kind != Access.LOAD and is_read_only(launch, address):
                    return record_fault(launch, warp, OUT_OF_BOUNDS, site, lane, address)
                buffer = find_buffer(launch, buffer, address)
                span = BufferRecord(buffer)
                start = span.start
                extent = span.bytes
                floor = launch.launch_began
                state = span.state
                history = span.history
                granule = span.granule
            offset = address - start
            end = start + extent
            # A 16-bit compare-and-swap is one of the aligned 32-bit word. At the end of a buffer the other half may be
            # outside of it, which is no fault as long as that half is left unchanged.
            if half:
                touched_bytes = size
                if offset + size // 2 == extent and leaves_half_unchanged(warp, kind, lane, 16):
                    touched_bytes = size // 2
                elif offset + size > extent and space != Space.SHARED:
                    buffer = find_buffer(launch, buffer, address + size // 2)
                    span = BufferRecord(buffer)
                    if span.start == address + size // 2 and leaves_half_unchanged(warp, kind, lane, 0):
                        offset = 0
                        extent = span.bytes
                        touched_bytes = size // 2
                        state = span.state
                        history = span.history
                        granule = span.granule
            if offset < 0 or offset + touched_bytes > extent:
                return record_fault(launch, warp, OUT_OF_BOUNDS, site, lane, address)
        # PTX ISA, "Addresses as operands": an access is aligned to its size, a vector access to that of the vector.
        if address & (size - 1):
            return record_fault(launch, warp, MISALIGNED, site, lane, address)
        # The state of the bytes: may they be read, or is a copy to them in flight.
        if state and (not drops or warp.lanes_using_load >> lane & 1):
            if kind == Access.STORE and history and is_pending(state + offset, touched_bytes):
                find_pending_copy(launch, state + offset, touched_bytes, history, offset >> granule)
                defer_fault(launch, cta, warp, RACE, site, lane, address, touched_bytes)
            # A read of unwritten global memory is a fault at once. In shared memory the writer may still come, and
            # then it is a race: the fault is deferred. Several reductions in flight may write the same bytes.
            written = check_states(state + offset, touched_bytes, kind)
            in_flight = 0
            if not written:
                in_flight = find_pending_copy(launch, state + offset, touched_bytes, history, offset >> granule)
                if kind == Access.ATOMIC and in_flight and is_reduction(launch):
                    written = 1
                    in_flight = 0
            if not written and space != Space.SHARED:
                return record_fault(launch, warp, UNINITIALIZED, site, lane, address)
            # A wgmma in flight reads shared memory until it is waited for, whatever the history says.
            if kind != Access.LOAD and space == Space.SHARED and cta.reads_in_flight:
                launch.conflict_id = find_wgmma_read(cta, address, touched_bytes)
                launch.conflict_time = launch.time
                if launch.conflict_id:
                    defer_fault(launch, cta, warp, RACE, site, lane, address, touched_bytes)
            if cta.deferred_address and kind == Access.STORE:
                turn_into_race(launch, cta, warp, site, lane, address, touched_bytes)
            # Happens-before, granule by granule.
            if history and not in_flight:
                for granule_index in range(offset >> granule, (offset + touched_bytes - 1 >> granule) + 1):
                    races = check_race(
                        launch, cta, floor, history, granule_index, warp.index, lane, site, kind, ordering
                    )
                    if races and not is_harmless_store(launch, cta, warp, site, space, kind, size, parts, mask, lane):
                        defer_fault(launch, cta, warp, RACE, site, lane, address, touched_bytes)
            if not written:
                defer_fault(launch, cta, warp, UNINITIALIZED, site, lane, address, touched_bytes)
    if kind != Access.LOAD and named != Space.SHARED and cta.copies_in_flight:
        check_source_overwrite(launch, cta, warp, site, mask, size)
    if launch.sampled_blocks and named != Space.SHARED:
        record_reach(launch, warp.address + ADDRESSES, mask, size)
    if is_in_registers_already or (ordering == UNORDERED and kind == Access.LOAD):  # a wait is counted when it is over
        return 0
    # From here on the access is counted, as ncu would.
    lanes = count_bits(mask)
    counts.requests += 1
    counts.lanes += lanes
    if kind == Access.ATOMIC and space != Space.LOCAL:
        same_address = count_same_address(warp.address + ADDRESSES, mask)
        # ptxas has combined the operation of all lanes: one lane executes it.
        if counts.atomic_strategy == AtomicStrategy.ELECTED and same_address == lanes:
            mask = mask & -mask
            same_address = 1
        counts.same_address += same_address
    if space == Space.SHARED:
        if ordering == STRONG and kind == Access.LOAD:
            count_poll(launch, cta, warp, warp.address + ADDRESSES, mask)
            # How often a poll is repeated depends on the schedule, so repetitions are not counted.
            if spins and repeats_last_poll(warp, site, warp.address + ADDRESSES, mask):
                counts.requests -= 1
                counts.lanes -= lanes
                return 0
        is_atomic = kind == Access.ATOMIC
        own_lanes = mask
        if launch.cluster_size > 1:
            own_lanes = lanes_of_block(warp.address + ADDRESSES, mask, cta.shared)
        if own_lanes:
            count_shared(counts, warp.address + ADDRESSES, own_lanes, width, is_atomic, warp.address + BANK_WORDS)
        else:  # what goes to another block is not counted as shared memory, by ncu either
            counts.requests -= 1
            counts.lanes -= lanes
        if launch.cluster_size > 1 and (is_atomic or ordering) and ordering != UNORDERED:
            poll(launch, cta, warp, warp.address + ADDRESSES, mask)
    elif kind == Access.ATOMIC and space != Space.LOCAL:
        counts.sectors += count_atomic_sectors(warp.address + ADDRESSES, mask)
        poll(launch, cta, warp, warp.address + ADDRESSES, mask)
    elif space == Space.GLOBAL:
        if ordering:
            poll(launch, cta, warp, warp.address + ADDRESSES, mask)
            if spins and repeats_last_poll(warp, site, warp.address + ADDRESSES, mask):
                counts.requests -= 1
                counts.lanes -= lanes
                return 0
        sectors = count_sectors(warp.address + ADDRESSES, mask)
        counts.sectors += sectors
        counts.scattered += scattered(sectors, lanes * width)
    return 0


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


@native
def leaves_half_unchanged(warp: WarpRecord, kind: int, lane: int, bit: int) -> int:
    """Return whether a load, or a compare-and-swap of a word, leaves the half from ``bit`` on as it is."""
    row = warp.address + OPERANDS + 8 * lane
    return kind == Access.LOAD or not (load64(row) ^ load64(row + 256)) >> bit & 0xFFFF


@noinline
def is_harmless_store(
    launch: LaunchRecord,
    cta: CtaRecord,
    warp: WarpRecord,
    site: int,
    space: int,
    kind: int,
    size: int,
    parts: int,
    mask: int,
    lane: int,
) -> int:
    """Return whether a store writes the value that is there already, or that the other lane of this instruction
    writes.

    Triton's reductions let all lanes store the result of their warp, and all warps that hold the same tile store all of
    it. Such values may differ by rounding where the operation does not commute to the last bit: each of them is a
    correct result. Only Triton's compiler writes to that memory.

    In a sample of the blocks, blocks that are far apart must not write to one element, whatever the value.
    """
    if kind != Access.STORE or launch.conflict_time < launch.stretch_began:
        return 0
    if launch.compiler_scratch and space == Space.SHARED and site_of(launch.conflict_id) == site:
        return 1
    address = load64(warp.address + ADDRESSES + 8 * lane)
    other_thread = thread_of(launch.conflict_id)
    partner = other_thread & 31
    is_same_instruction = 0
    if launch.conflict_time >= cta.turn_began and other_thread >> 5 == warp.index and mask >> partner & 1:
        is_same_instruction = partner != lane and load64(warp.address + ADDRESSES + 8 * partner) == address
    width = size // parts
    for part in range(parts):
        row = warp.address + OPERANDS + 256 * part
        other_value = load_bytes(address + part * width, width)
        if is_same_instruction:
            other_value = load64(row + 8 * partner)
        if load64(row + 8 * lane) != other_value:
            return 0
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
