"""The instructions of a warpgroup: wgmma.mma_async, commit_group, wait_group.

The four warps of a warpgroup multiply together, 16 rows each. The machine computes a warp's product at once, and
remembers which shared memory it reads: no thread may write there before a warp of the warpgroup has waited. The waiting
warp goes on when the other three have committed the same groups, for then the hardware has read all operands.
"""

from __future__ import annotations

from warpcheck.errors import FAULT_KINDS, FaultKind
from warpcheck.events import EventKind
from warpcheck.layout import LANES, POSITION, READS, UNFENCED, Access
from warpcheck.native import load64, native, noinline, store64
from warpcheck.runtime.access_history import ENTRY_BYTES, Granule, id_of, set_conflict, time_of
from warpcheck.runtime.byte_states import UNREADABLE_BITS
from warpcheck.runtime.deferred_faults import NO_FENCE, RACE, UNINITIALIZED, defer_fault
from warpcheck.runtime.event_recorder import NO_BARRIER, NO_SITE, record_event
from warpcheck.runtime.happens_before import WARPS, raise_to
from warpcheck.runtime.memory import OPERANDS, OUT_OF_BOUNDS, SAMPLED, record_fault
from warpcheck.runtime.proxies import FENCES_SHARED, is_visible_to_async_proxy
from warpcheck.runtime.races import check_race
from warpcheck.runtime.records import CountsRecord, CtaRecord, LaunchRecord, ReadRecord, SampleRecord, WarpRecord
from warpcheck.runtime.wgmma_operands import CHUNK, chunk_at, end_reads, layout_of, read_slot

__all__ = [
    "CHUNKS",
    "FACTORS",
    "PRODUCTS_BYTES",
    "date_reads",
    "hazard",
    "read_chunks",
    "sample_chunks",
    "wgmma_commit",
    "wgmma_operand",
    "wgmma_wait",
]

DESCRIPTOR = FAULT_KINDS.index(FaultKind.DESCRIPTOR)
RESERVED = 0xC000 | 0xC000 << 16 | 0x1C000 << 32 | 0x3FF << 52  # bits of a descriptor that mean nothing
# Offsets in the scratch memory for products: the addresses of A's chunks are at 0, of B's at CHUNKS, A as numbers at
# FACTORS. PRODUCTS_BYTES is its size in bytes.
CHUNKS = 1 << 12
FACTORS = 1 << 13
PRODUCTS_BYTES = 12 << 10


@native
def wgmma_operand(
    launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, site: int, mask: int, operand: int, rows: int, major: int
) -> int:
    """Check and count a warp's read of an operand, 0 for A and 1 for B, and leave the addresses of its chunks."""
    row = warp.address + OPERANDS + 256 * operand
    descriptor = load64(row)
    # PTX ISA, wgmma.mma_async: a descriptor has the same value in all lanes of a warp.
    for lane in range(LANES):
        if load64(row + 8 * lane) != descriptor:
            return record_descriptor_fault(launch, warp, site, lane, load64(row + 8 * lane), 1)
    if descriptor & RESERVED:
        return record_descriptor_fault(launch, warp, site, 0, descriptor, 2)
    # A warpgroup is four consecutive warps, the first with a number that is a multiple of 4.
    if (warp.index | 3) >= cta.warp_count:
        return record_descriptor_fault(launch, warp, site, 0, descriptor, 3)
    read = ReadRecord(read_slot(cta, warp, warp.reads_begun))
    # The ring is full: the oldest read is forgotten, and can no longer conflict.
    if warp.reads_begun - warp.reads_ended == READS:
        warp.reads_ended += 1
    else:
        cta.reads_in_flight += 1
    warp.reads_begun += 1
    # PTX ISA, "Matrix-descriptor": addresses and offsets are in units of 16 bytes, bits 62-63 have the swizzle mode.
    mode = descriptor >> 62 & 3
    read.waited_at = 0
    read.group = warp.wgmma_groups
    read.position = warp.wgmma_position
    read.site = site
    read.start = (descriptor & 0x3FFF) << 4
    read.lead = (descriptor >> 16 & 0x3FFF) << 4
    read.stride = (descriptor >> 32 & 0x3FFF) << 4
    # Modes 1, 2, and 3 swizzle 128, 64, and 32 bytes.
    read.span = 256 >> mode if mode else CHUNK
    read.base = descriptor >> 49 & 7
    read.major = major
    read.per_chunk = 8
    # Each warp reads 16 of the 64 rows of A, and all of B.
    read.first = 0 if operand else 16 * (warp.index & 3)
    read.rows = rows
    read.halves = 2
    read.atom = 0
    if not read_chunks(launch, cta, warp, cta, read, site, cta.products + CHUNKS * operand):
        return 1
    counts = CountsRecord(launch.counts + site * CountsRecord.size)
    if operand:
        record_event(launch, cta, warp.index, EventKind.MULTIPLY, site, NO_BARRIER, 0, 0)
    if operand and counts.requests == 0:
        sample_chunks(launch, site, cta.products + CHUNKS, 2 * rows)
    counts.requests += operand
    if not operand or warp.index & 3 == 0:  # B is read once for the warpgroup
        counts.lanes += 2 * rows
        counts.wavefronts += rows // 4
        counts.least += rows // 4
    return 0


@native
def sample_chunks(launch: LaunchRecord, site: int, table: int, count: int) -> None:
    """Keep the addresses of the first chunks of B, for pictures."""
    sample = SampleRecord(launch.samples + site * SampleRecord.size)
    sample.mask = (1 << min(count, LANES)) - 1
    for chunk in range(min(count, LANES)):
        store64(sample.address + SAMPLED + 8 * chunk, load64(table + 8 * chunk))


@noinline
def read_chunks(
    launch: LaunchRecord,
    cta: CtaRecord,
    warp: WarpRecord,
    owner: CtaRecord,
    read: ReadRecord,
    site: int,
    table: int,
) -> int:
    """Check each chunk of an operand in the shared memory of ``owner`` as a read of a warp of ``cta``.

    Return whether all of them are in shared memory.
    """
    layout = layout_of(read)
    low = launch.shared_bytes
    high = 0
    granule = launch.shared_granule
    fenced_write = 0
    for chunk in range(read.halves * read.rows):
        offset = chunk_at(layout, chunk)
        address = owner.shared + offset
        if offset + CHUNK > launch.shared_bytes:
            record_fault(launch, warp, OUT_OF_BOUNDS, site, 0, address)
            return 0
        store64(table + 8 * chunk, address)
        low, high = min(low, offset), max(high, offset + CHUNK)
        state = owner.shared_state + offset
        if (load64(state) | load64(state + 8)) & UNREADABLE_BITS:
            defer_fault(launch, cta, warp, UNINITIALIZED, site, 0, address, CHUNK)
        history = owner.shared_history
        for granule_index in range(offset >> granule, (offset + CHUNK - 1 >> granule) + 1):
            write_word = load64(history + ENTRY_BYTES * granule_index)
            if write_word | LANES - 1 != fenced_write and time_of(write_word) >= owner.block_began:
                fenced_write = (
                    write_word | LANES - 1
                )  # what the lanes of a warp have written together is fenced together
                if not is_visible_to_async_proxy(launch, cta, warp.index, write_word, FENCES_SHARED):
                    set_conflict(launch, id_of(write_word), time_of(write_word))
                    defer_fault(launch, cta, warp, NO_FENCE, site, 0, address, CHUNK)
            entry = Granule(owner.block_began, history, granule_index)
            if check_race(launch, cta, entry, warp.index, 0, site, Access.LOAD, 0):
                defer_fault(launch, cta, warp, RACE, site, 0, address, CHUNK)
    read.low = low
    read.high = high
    return 1


@noinline
def date_reads(
    launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, owner: CtaRecord, read: ReadRecord, site: int, lane: int
) -> None:
    """Date the reads of an operand in the shared memory of ``owner`` now: a product reads it when it is executed.

    Writes since its issue have found the product in the queue, so a conflict has been reported.
    """
    layout = layout_of(read)
    granule = launch.shared_granule
    for chunk in range(read.halves * read.rows):
        offset = chunk_at(layout, chunk)
        for granule_index in range(offset >> granule, (offset + CHUNK - 1 >> granule) + 1):
            entry = Granule(owner.block_began, owner.shared_history, granule_index)
            check_race(launch, cta, entry, warp.index, lane, site, Access.LOAD, 0)


@native
def record_descriptor_fault(
    launch: LaunchRecord, warp: WarpRecord, site: int, lane: int, descriptor: int, rule: int
) -> int:
    """Record a fault of a descriptor. Return 1."""
    launch.fault_detail = rule
    return record_fault(launch, warp, DESCRIPTOR, site, lane, descriptor)


@native
def wgmma_commit(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, argument: int, mask: int) -> int:
    """Make the products issued so far a group."""
    record_event(launch, cta, warp.index, EventKind.COMMIT, NO_SITE, NO_BARRIER, 0, 0)
    warp.wgmma_groups += 1
    launch.time += 1
    warp.wgmma_time = launch.time
    return 0


@native
def wgmma_wait(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, allowed: int, mask: int) -> int:
    """Wait until at most ``allowed`` groups are in flight, and for the other warps of the warpgroup to commit them.

    What the warpgroup read for groups that are complete happens before what the warp does now.
    """
    groups = warp.wgmma_groups - allowed
    warp.blocked_lanes = 0
    warp.awaited_mbarrier = 0
    if groups <= warp.wgmma_waited:
        return 0
    first = cta.warps + (warp.index & ~3) * cta.warp_stride
    for rank in range(4):
        peer_warp = WarpRecord(first + rank * cta.warp_stride)
        # The four warps multiply together, so a product cannot be complete before the last of them has committed it.
        if peer_warp.wgmma_groups < groups:
            warp.blocked_lanes = mask
            return 0
    launch.time += 1
    for rank in range(4):
        peer_warp = WarpRecord(first + rank * cta.warp_stride)
        raise_to(cta.vector_clock + 8 * (WARPS * warp.index + peer_warp.index), peer_warp.wgmma_time)
        peer_warp.wgmma_released = max(peer_warp.wgmma_released, groups)
    warp.wgmma_waited = groups
    end_reads(launch, cta, warp)
    return 0


@native
def hazard(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, position: int, mask: int, kind: int) -> int:
    """Fault on the use of a register that the wgmma at ``position`` still writes or reads, if it is in flight; see
    ``wgmma_hazards``.

    Triton 3.6 converts some of A's registers after its fence. No author of a kernel can move it, and GPUs compute the
    right result, so that case is exempt.
    """
    is_in_flight = kind == UNFENCED and not launch.compiler_scratch
    for read_number in range(warp.reads_ended, warp.reads_begun):
        read = ReadRecord(read_slot(cta, warp, read_number))
        is_in_flight = is_in_flight or read.position == position
    if is_in_flight:
        launch.fault_detail = kind
        launch.fault_block = warp.wgmma_position >> POSITION
        record_fault(launch, warp, RACE, ~(warp.wgmma_position & (1 << POSITION) - 1), 0, position)
    return is_in_flight
