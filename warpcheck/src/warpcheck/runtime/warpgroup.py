"""What happens at the instructions of a warpgroup: wgmma.mma_async, commit_group, wait_group.

The four warps of a warpgroup multiply together, each its 16 rows. Here a warp has its products at once. It remembers
what is read in shared memory, and until when: nobody may write there before a warp of the warpgroup has waited. That
one goes on when the others have committed the same groups, for then the hardware has read everything.
"""

from __future__ import annotations

from warpcheck.errors import FAULT_KINDS, FaultKind
from warpcheck.events import EventKind
from warpcheck.layout import LANES, POSITION, READS, UNFENCED, Access
from warpcheck.native import apart, load64, native, store64
from warpcheck.runtime.happens_before import WARPS, raise_to
from warpcheck.runtime.history import ENTRY, LOW, accuse
from warpcheck.runtime.memory import OPERANDS, OUT_OF_BOUNDS, SAMPLED, fault
from warpcheck.runtime.proxies import OF_SHARED, is_seen
from warpcheck.runtime.races import check
from warpcheck.runtime.reads import CHUNK, chunk_at, end_reads, read_slot
from warpcheck.runtime.recorder import NO_BARRIER, NO_SITE, note
from warpcheck.runtime.records import CountsRecord, CtaRecord, LaunchRecord, ReadRecord, SampleRecord, WarpRecord
from warpcheck.runtime.states import ODD
from warpcheck.runtime.suspects import NO_FENCE, RACE, UNINITIALIZED, suspect

__all__ = ["CHUNKS", "FACTORS", "ROOM", "hazard", "wgmma_commit", "wgmma_operand", "wgmma_wait"]

DESCRIPTOR = FAULT_KINDS.index(FaultKind.DESCRIPTOR)
RESERVED = 0xC000 | 0xC000 << 16 | 0x1C000 << 32 | 0x3FF << 52  # bits of a descriptor that mean nothing
CHUNKS, FACTORS, ROOM = 1 << 12, 1 << 13, 12 << 10
"""In the room for products: addresses of A's chunks, from CHUNKS on of B's, from FACTORS on A as numbers; its bytes."""


@native
def wgmma_operand(
    launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, number: int, mask: int, operand: int, rows: int, major: int
) -> int:
    """Check and count what a warp reads of an operand, 0 for A and 1 for B, and leave the addresses of its chunks."""
    row = warp.address + OPERANDS + 256 * operand
    descriptor = load64(row)
    for lane in range(LANES):
        if load64(row + 8 * lane) != descriptor:
            return refuse(launch, warp, number, lane, load64(row + 8 * lane), 1)
    if descriptor & RESERVED:
        return refuse(launch, warp, number, 0, descriptor, 2)
    if (warp.index | 3) >= cta.warp_count:
        return refuse(launch, warp, number, 0, descriptor, 3)
    read = ReadRecord(read_slot(cta, warp, warp.reads_begun))
    if warp.reads_begun - warp.reads_ended == READS:
        warp.reads_ended += 1
    else:
        cta.unwaited += 1
    warp.reads_begun += 1
    mode = descriptor >> 62 & 3
    read.until = 0
    read.group = warp.wgmma_groups
    read.place = warp.wgmma_place
    read.site = number
    read.start = (descriptor & 0x3FFF) << 4
    read.lead = (descriptor >> 16 & 0x3FFF) << 4
    read.stride = (descriptor >> 32 & 0x3FFF) << 4
    read.span = 256 >> mode if mode else CHUNK
    read.base = descriptor >> 49 & 7
    read.major = major
    read.first = 0 if operand else 16 * (warp.index & 3)
    read.rows = rows
    if not read_chunks(launch, cta, warp, read, number, cta.products + CHUNKS * operand):
        return 1
    counts = CountsRecord(launch.counts + number * CountsRecord.size)
    if operand:
        note(launch, cta, warp.index, EventKind.MULTIPLY, number, NO_BARRIER, 0, 0)
    if operand and counts.requests == 0:
        take_chunks(launch, number, cta.products + CHUNKS, 2 * rows)
    counts.requests += operand
    if not operand or warp.index & 3 == 0:  # B is read once for the warpgroup
        counts.lanes += 2 * rows
        counts.wavefronts += rows // 4
        counts.least += rows // 4
    return 0


@native
def take_chunks(launch: LaunchRecord, number: int, table: int, count: int) -> None:
    """Keep the addresses of the first chunks of B, for pictures."""
    sample = SampleRecord(launch.samples + number * SampleRecord.size)
    sample.mask = (1 << min(count, LANES)) - 1
    for place in range(min(count, LANES)):
        store64(sample.address + SAMPLED + 8 * place, load64(table + 8 * place))


@apart
def read_chunks(
    launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, read: ReadRecord, number: int, table: int
) -> int:
    """Check each chunk as other reads are. Whether all lie in shared memory."""
    start, lead, stride, span, base, first = read.start, read.lead, read.stride, read.span, read.base, read.first
    low, high, granule = launch.shared_bytes, 0, launch.shared_granule
    fenced = 0
    for place in range(2 * read.rows):
        offset = chunk_at(start, lead, stride, span, base, read.major, first, read.rows, place)
        address = cta.shared + offset
        if offset + CHUNK > launch.shared_bytes:
            fault(launch, warp, OUT_OF_BOUNDS, number, 0, address)
            return 0
        store64(table + 8 * place, address)
        low, high = min(low, offset), max(high, offset + CHUNK)
        state = cta.shared_state + offset
        if (load64(state) | load64(state + 8)) & ODD:
            suspect(launch, cta, warp, UNINITIALIZED, number, 0, address, CHUNK)
        history = cta.shared_history
        for granule_number in range(offset >> granule, (offset + CHUNK - 1 >> granule) + 1):
            write = load64(history + ENTRY * granule_number)
            if write | LANES - 1 != fenced and write >> 32 >= cta.block_began:
                fenced = write | LANES - 1  # what the lanes of a warp have written together is fenced together
                if not is_seen(launch, cta, warp.index, write, OF_SHARED):
                    accuse(launch, write & LOW, write >> 32)
                    suspect(launch, cta, warp, NO_FENCE, number, 0, address, CHUNK)
            if check(launch, cta, cta.block_began, history, granule_number, warp.index, 0, number, Access.LOAD, 0):
                suspect(launch, cta, warp, RACE, number, 0, address, CHUNK)
    read.low = low
    read.high = high
    return 1


@native
def refuse(launch: LaunchRecord, warp: WarpRecord, number: int, lane: int, descriptor: int, why: int) -> int:
    """Complain of a descriptor."""
    launch.fault_detail = why
    return fault(launch, warp, DESCRIPTOR, number, lane, descriptor)


@native
def wgmma_commit(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, argument: int, mask: int) -> int:
    """The products begun so far are a group."""
    note(launch, cta, warp.index, EventKind.COMMIT, NO_SITE, NO_BARRIER, 0, 0)
    warp.wgmma_groups += 1
    launch.time += 1
    warp.wgmma_time = launch.time
    return 0


@native
def wgmma_wait(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, allowed: int, mask: int) -> int:
    """Wait until at most ``allowed`` groups are in flight. It waits for the other warps of its warpgroup, too.

    What the warpgroup read for groups that are done happens before what the warp does now.
    """
    groups = warp.wgmma_groups - allowed
    warp.failing, warp.waits_at = 0, 0
    if groups <= warp.wgmma_waited:
        return 0
    first = cta.warps + (warp.index & ~3) * cta.warp_stride
    for place in range(4):
        other = WarpRecord(first + place * cta.warp_stride)
        if other.wgmma_groups < groups:
            warp.failing = mask
            return 0
    launch.time += 1
    for place in range(4):
        other = WarpRecord(first + place * cta.warp_stride)
        raise_to(cta.known + 8 * (WARPS * warp.index + other.index), other.wgmma_time)
        other.wgmma_released = max(other.wgmma_released, groups)
    warp.wgmma_waited = groups
    end_reads(launch, cta, warp)
    return 0


@native
def hazard(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, place: int, mask: int, kind: int) -> int:
    """A register is used that the wgmma at ``place`` still writes or reads, if that is in flight; see ``inflight``.

    Triton 3.6 converts some of A's registers behind its fence. No author can place one, and GPUs are right.
    """
    found = kind == UNFENCED and not launch.scratch
    for number in range(warp.reads_ended, warp.reads_begun):
        read = ReadRecord(read_slot(cta, warp, number))
        found = found or read.place == place
    if found:
        launch.fault_detail = kind
        launch.fault_block = warp.wgmma_place >> POSITION
        fault(launch, warp, RACE, ~(warp.wgmma_place & (1 << POSITION) - 1), 0, place)
    return found
