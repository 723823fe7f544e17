"""Issuing bulk and tensor copies: their operands, the rules that these keep, and what they access; see ``bulk``."""

from __future__ import annotations

from warpcheck.events import EventKind
from warpcheck.layout import LANES
from warpcheck.native import count_bits, load32, load64, lowest_bit, native, store64
from warpcheck.runtime.box_checks import begin_far, begin_near, sectors_of, unwritten
from warpcheck.runtime.boxes import AXES, START, BulkRecord, Direction, decode, measure, size_of, span
from warpcheck.runtime.bulk import (
    BAD_COPY,
    BULKS,
    FREE,
    GROUPS,
    ISSUED,
    finish,
    perform_copy,
    retire,
    slot_of,
    target_of,
)
from warpcheck.runtime.copy_rules import CopyRule
from warpcheck.runtime.history import ASYNCHRONOUS, LOW, SITE
from warpcheck.runtime.mbarriers import require_init
from warpcheck.runtime.memory import OPERANDS, SAMPLED, fault
from warpcheck.runtime.recorder import NO_BARRIER, find_mbarrier, note_at
from warpcheck.runtime.records import BufferRecord, CountsRecord, CtaRecord, LaunchRecord, SampleRecord, WarpRecord
from warpcheck.runtime.reductions import reduces
from warpcheck.runtime.spaces import find, owner_of

__all__ = ["COORDINATES", "FAR", "NBYTES", "NEAR", "TARGETS", "TRACKER", "issue_bulk"]

MAP, ALIGNED = 128, 64  # bytes of a tensor map, and what its address is a multiple of
FAR, NEAR, TRACKER, NBYTES, TARGETS, COORDINATES = range(6)  # rows of operands, of 64 bits each


@native
def issue_bulk(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, number: int, mask: int) -> int:
    """Issue the copies of a warp. The upper half of ``number`` says what they are; see ``isa.bulk``.

    ptxas issues loads and reductions once for each lane, a store with equal operands once.
    """
    site, what = number & LOW, number >> 32
    if what & 7 == Direction.STORE and not what >> 6 & 15 and uniform(warp, mask, what >> 3 & 7):
        mask = mask & 0 - mask
    while mask:
        lane = lowest_bit(mask)
        mask &= mask - 1
        if issue_one(launch, cta, warp, site, what, lane):
            return 1
    return 0


@native
def issue_one(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, site: int, what: int, lane: int) -> int:
    """Issue the copy of one lane. Whether it is at fault."""
    if launch.bulk_begun - launch.bulk_ended == BULKS:
        oldest = BulkRecord(slot_of(launch, launch.bulk_ended))
        finish(launch, oldest)
        retire(launch)
    copy = BulkRecord(slot_of(launch, launch.bulk_begun))
    launch.time += 1
    copy.state = FREE
    copy.site = site
    copy.cta = cta.address
    copy.warp = warp.address
    copy.lane = lane
    copy.group = load32(warp.address + GROUPS + 4 * lane)
    copy.time = launch.time
    copy.trace = site + 1 << SITE | ASYNCHRONOUS | warp.index * LANES + lane
    copy.direction = what & 7
    copy.rank = what >> 3 & 7
    copy.operation = what >> 6 & 15
    copy.kind = what >> 10 & 15
    copy.targets = operand(warp, TARGETS, lane) if what >> 14 & 1 else 0
    rule = prepare(launch, warp, copy, lane)
    if not rule and copy.direction != Direction.PREFETCH:
        rule = prepare_shared(launch, cta, warp, copy, lane, what >> 3 & 7)
    if rule:
        launch.fault_detail = rule
        return fault(launch, warp, BAD_COPY, site, lane, operand(warp, NEAR, lane))
    if copy.direction == Direction.PREFETCH:
        return 0
    measure(copy)
    if begin_far(launch, cta, warp, copy):
        return 1
    for rank in range(launch.cluster_size):
        home = CtaRecord(target_of(cta, copy, rank))
        if home.address and begin_near(launch, cta, warp, copy, home):
            return 1
        # The copy will signal the mbarrier of each block that it goes to: all have to be initialized before its issue.
        if home.address and copy.direction != Direction.STORE:
            place = find_mbarrier(home, home.shared + copy.barrier)
            if place:
                require_init(launch, cta, warp, home, place, site, lane)
    count(launch, copy)
    kind, tracker = EventKind.STORE, NO_BARRIER
    if copy.direction != Direction.STORE:
        kind, tracker = EventKind.LOAD, operand(warp, TRACKER, lane)
    note_at(launch, cta, warp.index, kind, site, CtaRecord(copy.home), tracker, copy.total)
    copy.state = ISSUED
    launch.bulk_begun += 1
    if launch.reverse > 1:
        perform_copy(launch.address, copy.address)
        retire(launch)
    return 0


@native
def prepare(launch: LaunchRecord, warp: WarpRecord, copy: BulkRecord, lane: int) -> int:
    """Take over the operands of the end in global memory. Returns a CopyRule."""
    if copy.rank:
        return prepare_map(launch, warp, copy, lane)
    return prepare_span(launch, warp, copy, lane)


@native
def prepare_map(launch: LaunchRecord, warp: WarpRecord, copy: BulkRecord, lane: int) -> int:
    """Take over a tensor map and coordinates. Returns a CopyRule."""
    far = operand(warp, FAR, lane)
    if far & ALIGNED - 1:
        return CopyRule.MAP_ALIGNED
    buffer = BufferRecord(find(launch, launch.buffers, far))
    offset = far - buffer.start
    if offset < 0 or offset + MAP > buffer.bytes or unwritten(buffer.state + offset, MAP):
        return CopyRule.NO_MAP
    for axis in range(AXES):
        store64(copy.address + START + 8 * axis, operand(warp, COORDINATES + axis, lane))
    rule = decode(copy, far)
    if not rule and copy.operation and not reduces(copy.operation, copy.kind):
        return CopyRule.NO_REDUCTION
    return rule


@native
def prepare_span(launch: LaunchRecord, warp: WarpRecord, copy: BulkRecord, lane: int) -> int:
    """Take over an address and a number of bytes. Returns a CopyRule."""
    far, nbytes = operand(warp, FAR, lane), operand(warp, NBYTES, lane)
    if nbytes & 15:
        return CopyRule.SIZE
    if far & 15:
        return CopyRule.SHARED_16 if copy.direction == Direction.PEER else CopyRule.GLOBAL_16
    span(copy, far, size_of(copy.kind) if copy.operation else 16, nbytes)
    return CopyRule.NONE


@native
def prepare_shared(
    launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, copy: BulkRecord, lane: int, tensor: int
) -> int:
    """Take over addresses in shared memory, of the box and of an mbarrier. Returns a CopyRule."""
    near, tracker = operand(warp, NEAR, lane), operand(warp, TRACKER, lane)
    home = CtaRecord(owner_of(launch, cta, near))
    if not home.address:
        return CopyRule.NO_PEER
    copy.home = home.address
    copy.offset = near - home.shared
    if copy.offset & 15:
        return CopyRule.SHARED_16
    if tensor and copy.offset & 127:
        return CopyRule.SHARED_128
    if copy.direction == Direction.STORE:
        return CopyRule.NONE
    copy.barrier = tracker - home.shared
    if copy.barrier & 7:
        return CopyRule.MBARRIER_8
    return CopyRule.NONE if owner_of(launch, cta, tracker) == home.address else CopyRule.MBARRIER_ELSEWHERE


@native
def uniform(warp: WarpRecord, mask: int, axes: int) -> int:
    """Whether the operands of a store, of a tensor with so many axes or of bytes, are equal in all lanes."""
    first = lowest_bit(mask)
    while mask:
        lane = lowest_bit(mask)
        mask &= mask - 1
        for row in range(COORDINATES + axes):
            given = row < TRACKER or row >= COORDINATES or (row == NBYTES and axes == 0)
            if given and operand(warp, row, lane) != operand(warp, row, first):
                return 0
    return 1


@native
def operand(warp: WarpRecord, row: int, lane: int) -> int:
    """An operand of a lane."""
    return load64(warp.address + OPERANDS + 256 * row + 8 * lane)


@native
def count(launch: LaunchRecord, copy: BulkRecord) -> None:
    """Count one request, whichever lanes issue it."""
    counts = CountsRecord(launch.counts + copy.site * CountsRecord.size)
    if counts.requests == 0:
        sample = SampleRecord(launch.samples + copy.site * SampleRecord.size)
        sample.mask = 1
        store64(sample.address + SAMPLED, copy.base)
    counts.requests += 1
    counts.bulk_bytes += copy.total
    if copy.direction != Direction.PEER:
        sectors = sectors_of(copy)
        counts.bulk_sectors += sectors
        if copy.targets:
            counts.multicast_sectors += sectors * (count_bits(copy.targets) - 1)
