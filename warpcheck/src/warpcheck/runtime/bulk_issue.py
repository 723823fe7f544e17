"""Issue bulk and tensor copies: their operands, the rules for these, and the accesses; see ``bulk``."""

from __future__ import annotations

from warpcheck.events import EventKind
from warpcheck.layout import LANES
from warpcheck.native import count_bits, load32, load64, lowest_bit, native, store64
from warpcheck.runtime.access_history import ASYNCHRONOUS, LOW_WORD, access_id_of
from warpcheck.runtime.address_spaces import find_buffer, owner_of
from warpcheck.runtime.box_checks import check_global_side, check_shared_side, sectors_of, unwritten
from warpcheck.runtime.boxes import (
    AXES,
    OFFSETS,
    SPATIAL_AXES,
    START,
    BulkRecord,
    Direction,
    decode,
    element_bytes,
    measure,
    span,
)
from warpcheck.runtime.bulk import (
    BAD_COPY,
    BULKS,
    FREE,
    GROUPS,
    ISSUED,
    bulk_slot,
    destination_owner,
    finish_bulk,
    perform_copy,
    retire_bulk,
    tracking_block,
)
from warpcheck.runtime.copy_rules import CopyRule
from warpcheck.runtime.event_recorder import NO_BARRIER, find_mbarrier, record_barrier_event
from warpcheck.runtime.happens_before import is_before_wait
from warpcheck.runtime.launch_control import RESPONSE_BYTES
from warpcheck.runtime.mbarriers import require_init
from warpcheck.runtime.memory import OPERANDS, SAMPLED, record_fault
from warpcheck.runtime.records import BufferRecord, CountsRecord, CtaRecord, LaunchRecord, SampleRecord, WarpRecord
from warpcheck.runtime.reductions import reduces

__all__ = [
    "FIRST_COORDINATE_ROW",
    "FIRST_OFFSET_ROW",
    "GLOBAL_ROW",
    "NBYTES_ROW",
    "SHARED_ROW",
    "TARGETS_ROW",
    "TRACKER_ROW",
    "issue_bulk",
]

MAP = 128
ALIGNED = 64  # bytes of a tensor map, and what its address is a multiple of
FIELDS = 64  # bytes of a tensor map that hold its fields; cpasync.copy_tensormap of the CuTe DSL writes no others
GLOBAL_ROW, SHARED_ROW, TRACKER_ROW, NBYTES_ROW, TARGETS_ROW, FIRST_COORDINATE_ROW = range(
    6
)  # rows of operands, of 64 bits each
FIRST_OFFSET_ROW = FIRST_COORDINATE_ROW + AXES  # of an im2col copy


@native
def issue_bulk(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, number: int, mask: int) -> int:
    """Issue the copies of a warp. The upper half of ``number`` describes them; see ``isa.bulk``.

    ptxas issues loads and reductions once for each lane, and a store with equal operands once.
    """
    site = number & LOW_WORD
    description = number >> 32
    if (
        description & 7 == Direction.STORE
        and not description >> 6 & 15
        and is_uniform(warp, mask, AXES if description >> 16 & 1 else description >> 3 & 7)
    ):
        mask = mask & 0 - mask
    while mask:
        lane = lowest_bit(mask)
        mask &= mask - 1
        if issue_lane(launch, cta, warp, site, description, lane):
            return 1
    return 0


@native
def issue_lane(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, site: int, description: int, lane: int) -> int:
    """Issue the copy of one lane. Return whether it is a fault."""
    # The ring is full.
    if launch.bulk_begun - launch.bulk_ended == BULKS:
        oldest = BulkRecord(bulk_slot(launch, launch.bulk_ended))
        finish_bulk(launch, oldest)
        retire_bulk(launch)
    copy = BulkRecord(bulk_slot(launch, launch.bulk_begun))
    launch.time += 1
    # The slot stays free until all checks have passed: a copy with a fault moves nothing.
    copy.state = FREE
    copy.site = site
    copy.cta = cta.address
    copy.warp = warp.address
    copy.lane = lane
    copy.group = load32(warp.address + GROUPS + 4 * lane)
    copy.time = launch.time
    copy.access_id = access_id_of(site, warp.index * LANES + lane) | ASYNCHRONOUS
    set_form(copy, description)
    copy.targets = operand_of(warp, TARGETS_ROW, lane) if description >> 14 & 1 else 0
    rule = prepare(launch, cta, warp, copy, lane)
    if not rule and copy.direction != Direction.PREFETCH:
        rule = prepare_shared(launch, cta, warp, copy, lane, description >> 3 & 7, description >> 15 & 1)
    if rule:
        launch.fault_detail = rule
        return record_fault(launch, warp, BAD_COPY, site, lane, operand_of(warp, SHARED_ROW, lane))
    if copy.direction == Direction.PREFETCH:
        return 0
    measure(copy)
    if copy.direction != Direction.CANCEL and check_global_side(launch, cta, warp, copy):
        return 1
    for rank in range(launch.cluster_size):
        owner = CtaRecord(destination_owner(cta, copy, rank))
        if owner.address and check_shared_side(launch, cta, warp, copy, owner):
            return 1
        # The copy will signal the mbarrier of each block that it goes to: all have to be initialized before its issue.
        if owner.address and copy.direction != Direction.STORE:
            tracking = CtaRecord(tracking_block(cta, copy, owner))
            record_address = find_mbarrier(tracking, tracking.shared + copy.barrier)
            if record_address:
                require_init(launch, cta, warp, tracking, record_address, site, lane)
    count_request(launch, cta, warp, copy)
    kind = EventKind.STORE
    tracker = NO_BARRIER
    if copy.direction != Direction.STORE:
        kind = EventKind.LOAD
        tracker = operand_of(warp, TRACKER_ROW, lane)
    record_barrier_event(launch, cta, warp.index, kind, site, CtaRecord(copy.owner), tracker, copy.total)
    copy.state = ISSUED
    launch.bulk_begun += 1
    # In a strided order a copy completes at once: this finds kernels that rely on its being late.
    if launch.reverse > 1:
        perform_copy(launch.address, copy.address)
        retire_bulk(launch)
    return 0


@native
def set_form(copy: BulkRecord, description: int) -> None:
    """Set what the form of the instruction says of a copy."""
    copy.direction = description & 7
    copy.rank = description >> 3 & 7
    copy.operation = description >> 6 & 15
    copy.kind = description >> 10 & 15
    copy.gathers = description >> 16 & 1
    copy.unrolls = description >> 17 & 1
    copy.has_offsets = description >> 18 & 1


@native
def prepare(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, copy: BulkRecord, lane: int) -> int:
    """Take over the operands of the global side. Return a CopyRule."""
    if copy.direction == Direction.CANCEL:
        return prepare_request(launch, cta, copy)
    if copy.rank:
        return prepare_map(launch, warp, copy, lane)
    return prepare_span(launch, warp, copy, lane)


@native
def prepare_request(launch: LaunchRecord, cta: CtaRecord, copy: BulkRecord) -> int:
    """Take over a request to cancel the launch of a cluster. Return a CopyRule."""
    span(copy, 0, RESPONSE_BYTES, RESPONSE_BYTES)
    copy.rank = 0
    if cta.cancel_failed:
        return CopyRule.CANCELED_OUT
    if copy.targets:
        copy.targets = (1 << launch.cluster_size) - 1
        for rank in range(launch.cluster_size):
            peer = CtaRecord(load64(cta.peers + 8 * rank))
            if not peer.block_began:
                return CopyRule.NO_PEER
    return CopyRule.NONE


@native
def prepare_map(launch: LaunchRecord, warp: WarpRecord, copy: BulkRecord, lane: int) -> int:
    """Take over a tensor map and coordinates. Return a CopyRule."""
    global_address = operand_of(warp, GLOBAL_ROW, lane)
    if global_address & ALIGNED - 1:
        return CopyRule.MAP_ALIGNED
    buffer = BufferRecord(find_buffer(launch, launch.buffers, global_address))
    offset = global_address - buffer.start
    # Memory that nothing has written holds no map, whatever its bytes happen to be.
    if offset < 0 or offset + MAP > buffer.bytes or unwritten(buffer.state + offset, FIELDS):
        return CopyRule.NO_MAP
    for axis in range(AXES):
        store64(copy.address + START + 8 * axis, operand_of(warp, FIRST_COORDINATE_ROW + axis, lane))
    for axis in range(SPATIAL_AXES):
        offset = operand_of(warp, FIRST_OFFSET_ROW + axis, lane) if copy.has_offsets else 0
        store64(copy.address + OFFSETS + 8 * (axis + 1), offset)
    rule = decode(copy, global_address)
    if not rule and copy.operation and not reduces(copy.operation, copy.kind):
        return CopyRule.NO_REDUCTION
    return rule


@native
def prepare_span(launch: LaunchRecord, warp: WarpRecord, copy: BulkRecord, lane: int) -> int:
    """Take over an address and a number of bytes. Return a CopyRule."""
    global_address = operand_of(warp, GLOBAL_ROW, lane)
    nbytes = operand_of(warp, NBYTES_ROW, lane)
    # PTX ISA, cp.async.bulk: the size and both addresses are multiples of 16 bytes.
    if nbytes & 15:
        return CopyRule.SIZE
    if global_address & 15:
        return CopyRule.SHARED_16 if copy.direction == Direction.PEER else CopyRule.GLOBAL_16
    span(copy, global_address, element_bytes(copy.kind) if copy.operation else 16, nbytes)
    return CopyRule.NONE


@native
def prepare_shared(
    launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, copy: BulkRecord, lane: int, rank: int, of_pair: int
) -> int:
    """Take over addresses in shared memory, of the box and of the mbarrier. Return a CopyRule."""
    copy.pair = 0
    shared_address = operand_of(warp, SHARED_ROW, lane)
    tracker = operand_of(warp, TRACKER_ROW, lane)
    owner = CtaRecord(owner_of(launch, cta, shared_address))
    if not owner.address:
        return CopyRule.NO_PEER
    copy.owner = owner.address
    copy.offset = shared_address - owner.shared
    if copy.offset & 15:
        return CopyRule.SHARED_16
    # PTX ISA, cp.async.bulk.tensor: a box in shared memory begins at a multiple of 128 bytes.
    if rank and copy.offset & 127:
        return CopyRule.SHARED_128
    if copy.direction == Direction.STORE:
        return CopyRule.NONE
    tracking = CtaRecord(owner_of(launch, cta, tracker))
    # With cta_group::2 the mbarrier may be that of the other block of the pair (PTX ISA, cp.async.bulk.tensor).
    if of_pair and tracking.address and owner.tensor_peer == tracking.address:
        owner = CtaRecord(tracking.address)
    if of_pair:
        copy.pair = 1 + (owner.rank & 1)
    copy.barrier = tracker - owner.shared
    if copy.barrier & 7:
        return CopyRule.MBARRIER_8
    return CopyRule.NONE if tracking.address == owner.address else CopyRule.MBARRIER_ELSEWHERE


@native
def is_uniform(warp: WarpRecord, mask: int, axes: int) -> int:
    """Return whether the operands of a store are equal in all lanes: of a tensor with ``axes`` axes, or of bytes."""
    first = lowest_bit(mask)
    while mask:
        lane = lowest_bit(mask)
        mask &= mask - 1
        for row in range(FIRST_COORDINATE_ROW + axes):
            is_used = row < TRACKER_ROW or row >= FIRST_COORDINATE_ROW or (row == NBYTES_ROW and axes == 0)
            if is_used and operand_of(warp, row, lane) != operand_of(warp, row, first):
                return 0
    return 1


@native
def operand_of(warp: WarpRecord, row: int, lane: int) -> int:
    """Return an operand of a lane."""
    return load64(warp.address + OPERANDS + 256 * row + 8 * lane)


@native
def count_request(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, copy: BulkRecord) -> None:
    """Count one request for a copy, whichever lanes issue it."""
    counts = CountsRecord(launch.counts + copy.site * CountsRecord.size)
    if counts.requests == 0:
        sample = SampleRecord(launch.samples + copy.site * SampleRecord.size)
        sample.mask = 1
        store64(sample.address + SAMPLED, copy.base)
    counts.requests += 1
    counts.bulk_bytes += copy.total
    if copy.direction != Direction.PEER and copy.direction != Direction.CANCEL:
        sectors = sectors_of(copy)
        counts.bulk_sectors += sectors
        if is_before_wait(cta, warp):
            launch.sectors_before_wait += sectors
        if copy.targets:
            # A multicast reads global memory once and delivers the bytes to each destination.
            counts.multicast_sectors += sectors * (count_bits(copy.targets) - 1)
