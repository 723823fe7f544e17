"""What happens at every access to memory: is it allowed, does it race, and what would the hardware have moved.

Generated code calls ``access`` once for each memory instruction of a warp, before the bytes are touched, with the 32
addresses in the warp's record and the active lanes in ``mask``. It returns 0, or 1 after writing its complaint into
the launch's record. The functions are compiled as they stand here; see ``native``.

A race, and a read of shared memory that nothing has written, do not stop the launch at once but at the next barrier or
the end of the block: by then it shows whether a thread skipped the barrier, or whether another one writes the memory.
"""

from __future__ import annotations

from warpcheck.errors import FAULT_KINDS, FaultKind
from warpcheck.layout import LANES, Access, Space, Way
from warpcheck.native import apart, count_bits, load64, lowest_bit, native, store64
from warpcheck.runtime.history import SITE, STRONG, THREAD, UNORDERED
from warpcheck.runtime.polling import ask, poll, repeats
from warpcheck.runtime.races import check
from warpcheck.runtime.reach import reach
from warpcheck.runtime.reads import wgmma_reads
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
from warpcheck.runtime.sources import judge_overwriting
from warpcheck.runtime.spaces import find, local_of, owner_of, space_of
from warpcheck.runtime.states import initialised, is_pending, number_at
from warpcheck.runtime.suspects import RACE, UNINITIALIZED, blame_copy, is_sum, look_for_writer, suspect
from warpcheck.runtime.transactions import (
    count_atomic_sectors,
    count_same_address,
    count_sectors,
    count_shared,
    in_registers,
    of_block,
    run_starts,
    scattered,
)

__all__ = ["ADDRESSES", "OPERANDS", "OUT_OF_BOUNDS", "SAMPLED", "access", "fault"]

OUT_OF_BOUNDS = FAULT_KINDS.index(FaultKind.OUT_OF_BOUNDS)
MISALIGNED = FAULT_KINDS.index(FaultKind.MISALIGNED)
SAMPLED = field_offset(SAMPLE, "addresses")
ADDRESSES, SERVED, OPERANDS = (field_offset(WARP, name) for name in ("addresses", "served", "operands"))


@native
def access(
    launch: LaunchRecord,
    cta: CtaRecord,
    warp: WarpRecord,
    number: int,
    mask: int,
    named: int,
    kind: int,
    size: int,
    parts: int,
    strong: int,
    partial: int,
    drops: int,
    half: int,
    spins: int,
) -> int:
    """Check and count one access of a warp, by the instruction that has this number.

    The others are known when a kernel is compiled: the space that the instruction names, the kind of access, its bytes
    in a lane, the parts that they come in, whether it is strong, whether the first row of operands has the bytes that
    each lane touches, for there are fewer, whether some lanes drop what they load, whether one half will do, and
    whether it is repeated in a loop until its value says to go on.
    """
    if mask == 0:
        return 0
    counts = CountsRecord(launch.counts + number * CountsRecord.size)
    width = max(counts.width, size)
    together = in_registers(counts, warp.address + ADDRESSES, mask, size)
    if counts.requests == 0 and not together:
        take_sample(launch, warp, number, mask, max(counts.width, 1))
    space, buffer, touched, left = named, launch.buffers, size, mask
    start, end, since, state, history, granule = 0, 0, 0, 0, 0, 0
    if kind == Access.LOAD and not (strong or partial or drops or half):
        left = first_two(warp.address + ADDRESSES, mask)
    while left:
        lane = lowest_bit(left)
        left &= left - 1
        address = load64(warp.address + ADDRESSES + 8 * lane)
        if partial:
            touched = load64(warp.address + OPERANDS + 8 * lane)
        offset = address - start
        if half or space == Space.LOCAL or address < start or address > end - touched:
            if named == Space.GENERIC:
                space = space_of(launch, cta, address)
            if named == Space.CLUSTER or space == Space.CLUSTER:
                peer = CtaRecord(owner_of(launch, cta, address))
                if not peer.address:
                    return fault(launch, warp, OUT_OF_BOUNDS, number, lane, address)
                start, extent, since = peer.shared, launch.shared_bytes, peer.block_began
                state, history, granule = peer.shared_state, peer.shared_history, launch.shared_granule
                space = Space.SHARED
            elif space == Space.SHARED:
                start, extent, since = cta.shared, launch.shared_bytes, cta.block_began
                state, history, granule = cta.shared_state, cta.shared_history, launch.shared_granule
            elif space == Space.LOCAL:
                start, extent, since = local_of(launch, cta, warp, lane), launch.local_bytes, 0
                state, history, granule = cta.local_state + start - cta.local, 0, 0
            elif space == Space.PARAM:
                start, extent, since, state, history, granule = launch.params, launch.param_bytes, 0, 0, 0, 0
            else:
                buffer = find(launch, buffer, address)
                span = BufferRecord(buffer)
                start, extent, since = span.start, span.bytes, launch.launch_began
                state, history, granule = span.state, span.history, span.granule
            offset, end = address - start, start + extent
            if half:
                touched = size
                if offset + size // 2 == extent and keeps(warp, kind, lane, 16):
                    touched = size // 2
                elif offset + size > extent and space != Space.SHARED:
                    buffer = find(launch, buffer, address + size // 2)
                    span = BufferRecord(buffer)
                    if span.start == address + size // 2 and keeps(warp, kind, lane, 0):
                        offset, extent, touched = 0, span.bytes, size // 2
                        state, history, granule = span.state, span.history, span.granule
            if offset < 0 or offset + touched > extent:
                return fault(launch, warp, OUT_OF_BOUNDS, number, lane, address)
        if address & (size - 1):
            return fault(launch, warp, MISALIGNED, number, lane, address)
        if state and (not drops or warp.wanted >> lane & 1):
            if kind == Access.STORE and history and is_pending(state + offset, touched):
                blame_copy(launch, state + offset, touched, history, offset >> granule)
                suspect(launch, cta, warp, RACE, number, lane, address, touched)
            written, in_flight = initialised(state + offset, touched, kind), 0
            if not written:
                in_flight = blame_copy(launch, state + offset, touched, history, offset >> granule)
                if kind == Access.ATOMIC and in_flight and is_sum(launch):
                    written, in_flight = 1, 0
            if not written and space != Space.SHARED:
                return fault(launch, warp, UNINITIALIZED, number, lane, address)
            if kind != Access.LOAD and space == Space.SHARED and cta.unwaited:
                launch.other, launch.other_time = wgmma_reads(cta, address, touched), launch.time
                if launch.other:
                    suspect(launch, cta, warp, RACE, number, lane, address, touched)
            if cta.suspect_address and kind == Access.STORE:
                look_for_writer(launch, cta, warp, number, lane, address, touched)
            if history and not in_flight:
                for place in range(offset >> granule, (offset + touched - 1 >> granule) + 1):
                    races = check(launch, cta, since, history, place, warp.index, lane, number, kind, strong)
                    if races and not harmless(launch, cta, warp, number, space, kind, size, parts, mask, lane):
                        suspect(launch, cta, warp, RACE, number, lane, address, touched)
            if not written:
                suspect(launch, cta, warp, UNINITIALIZED, number, lane, address, touched)
    if kind != Access.LOAD and named != Space.SHARED and cta.in_flight:
        judge_overwriting(launch, cta, warp, number, mask, size)
    if launch.places and named != Space.SHARED:
        reach(launch, warp.address + ADDRESSES, mask, size)
    if together or (strong == UNORDERED and kind == Access.LOAD):  # a wait is counted when it is over
        return 0
    lanes = count_bits(mask)
    counts.requests += 1
    counts.lanes += lanes
    if kind == Access.ATOMIC and space != Space.LOCAL:
        turns = count_same_address(warp.address + ADDRESSES, mask)
        if counts.way == Way.ELECTED and turns == lanes:
            mask, turns = mask & -mask, 1
        counts.same_address += turns
    if space == Space.SHARED:
        if strong == STRONG and kind == Access.LOAD:
            ask(launch, cta, warp, warp.address + ADDRESSES, mask)
            if spins and repeats(warp, number, warp.address + ADDRESSES, mask):
                counts.requests -= 1
                counts.lanes -= lanes
                return 0
        atomic, own = kind == Access.ATOMIC, mask
        if launch.cluster_size > 1:
            own = of_block(warp.address + ADDRESSES, mask, cta.shared)
        if own:
            count_shared(counts, warp.address + ADDRESSES, own, width, atomic, warp.address + SERVED)
        else:  # what goes to another block is not counted as shared memory, by ncu either
            counts.requests -= 1
            counts.lanes -= lanes
        if launch.cluster_size > 1 and (atomic or strong) and strong != UNORDERED:
            poll(launch, cta, warp, warp.address + ADDRESSES, mask)
    elif kind == Access.ATOMIC and space != Space.LOCAL:
        counts.sectors += count_atomic_sectors(warp.address + ADDRESSES, mask)
        poll(launch, cta, warp, warp.address + ADDRESSES, mask)
    elif space == Space.GLOBAL:
        if strong:
            poll(launch, cta, warp, warp.address + ADDRESSES, mask)
            if spins and repeats(warp, number, warp.address + ADDRESSES, mask):
                counts.requests -= 1
                counts.lanes -= lanes
                return 0
        sectors = count_sectors(warp.address + ADDRESSES, mask)
        counts.sectors += sectors
        counts.scattered += scattered(sectors, lanes * width)
    return 0


@native
def first_two(addresses: int, mask: int) -> int:
    """The active lanes but for those that have the address of both lanes before: what these read is judged already.

    Of such readers the history keeps two. They may race with one writer, and one of two readers is another thread.
    """
    first = run_starts(addresses, mask, 0)
    return mask & (first | first << 1)


@apart
def take_sample(launch: LaunchRecord, warp: WarpRecord, number: int, mask: int, width: int) -> None:
    """Keep the addresses of one request, for pictures: where the ``width`` bytes of a lane begin."""
    sample = SampleRecord(launch.samples + number * SampleRecord.size)
    sample.mask = mask
    for lane in range(LANES):
        store64(sample.address + SAMPLED + 8 * lane, load64(warp.address + ADDRESSES + 8 * lane) & -width)


@native
def keeps(warp: WarpRecord, kind: int, lane: int, place: int) -> int:
    """Whether a load, or a compare-and-swap of a word, leaves the half that begins at bit ``place`` as it is."""
    row = warp.address + OPERANDS + 8 * lane
    return kind == Access.LOAD or not (load64(row) ^ load64(row + 256)) >> place & 0xFFFF


@apart
def harmless(
    launch: LaunchRecord,
    cta: CtaRecord,
    warp: WarpRecord,
    number: int,
    space: int,
    kind: int,
    size: int,
    parts: int,
    mask: int,
    lane: int,
) -> int:
    """Whether a store writes what is there already, or what the other lane of this instruction writes.

    Triton's reductions let all lanes store the result of their warp, and warps that hold the same block all of theirs;
    those differ by rounding where the operation does not commute to the bit: whichever wins, its result is as good.
    Only its compiler writes to that memory.

    Blocks of a sample that are far apart must not write to one element, whatever they write.
    """
    if kind != Access.STORE or launch.other_time < launch.stretch_began:
        return 0
    if launch.scratch and space == Space.SHARED and launch.other >> SITE == number + 1:
        return 1
    address, other = load64(warp.address + ADDRESSES + 8 * lane), launch.other & THREAD
    partner, together = other & 31, 0
    if launch.other_time >= cta.turn_began and other >> 5 == warp.index and mask >> partner & 1:
        together = partner != lane and load64(warp.address + ADDRESSES + 8 * partner) == address
    width = size // parts
    for part in range(parts):
        row = warp.address + OPERANDS + 256 * part
        theirs = number_at(address + part * width, width)
        if together:
            theirs = load64(row + 8 * partner)
        if load64(row + 8 * lane) != theirs:
            return 0
    return 1


@native
def fault(launch: LaunchRecord, warp: WarpRecord, kind: int, number: int, lane: int, address: int) -> int:
    """Write down a complaint."""
    launch.fault_kind = kind
    launch.fault_site = number
    launch.fault_lane = lane
    launch.fault_warp = warp.index
    launch.fault_address = address
    return 1
