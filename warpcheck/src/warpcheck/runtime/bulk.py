"""Bulk and tensor copies (TMA): a thread issues them, and they are carried out as late as possible.

An issued copy waits in a ring of the launch. It is carried out when nothing else can run, when a thread waits for its
group, or when its block ends. Copies of one block may complete in any order: the one that a warp waits for completes
first; of several, the oldest, and in descending order of blocks the newest. With a strided order they complete at once.
Until a copy completes, the bytes that it writes are PENDING: a thread that reads them has not waited. It reads its
source only then, so a thread that writes there in between has not waited either; see ``box_checks``. ``bulk_issue``
issues the copies.
"""

from __future__ import annotations

from warpcheck.errors import FAULT_KINDS, FaultKind
from warpcheck.events import EventKind
from warpcheck.layout import Status
from warpcheck.native import extern, load32, load64, lowest_bit, native, store32, store64
from warpcheck.runtime.access_history import BLOCK_EXITED, set_conflict
from warpcheck.runtime.box_checks import land_global_side, land_shared_side, mark_global_written
from warpcheck.runtime.boxes import PIECE, BulkRecord, Direction, move_row, row_address
from warpcheck.runtime.copy_rules import CopyRule
from warpcheck.runtime.deferred_faults import RACE, defer_fault
from warpcheck.runtime.event_recorder import NO_BARRIER, record_barrier_event
from warpcheck.runtime.launch_control import claim_cluster, response_word
from warpcheck.runtime.mbarriers import complete_tx
from warpcheck.runtime.records import WARP, CtaRecord, LaunchRecord, WarpRecord, field_offset

__all__ = [
    "BAD_COPY",
    "BULKS",
    "FREE",
    "GROUPS",
    "ISSUED",
    "READ",
    "bulk_slot",
    "carry_out_copy",
    "commit_bulk",
    "destination_owner",
    "finish_all_bulk",
    "finish_bulk",
    "finish_one_bulk",
    "perform_copy",
    "retire_bulk",
    "tracking_block",
    "wait_bulk",
]

BULKS = 1024  # copies of a launch in flight; one more carries out the oldest
FREE, ISSUED, MOVED = 0, 1, 2  # the state of a copy; MOVED once its source was read: others see the result later
BAD_COPY = FAULT_KINDS.index(FaultKind.BAD_COPY)
GROUPS = field_offset(WARP, "bulk_groups")
READ = 1 << 32  # a flag in the argument of a wait: until the sources are read
LOW_WORD = 0xFFFFFFFF


@extern
def perform_copy(launch: int, copy: int) -> int:
    """Run ``carry_out_copy``, compiled once for all callers."""
    raise NotImplementedError


@native
def carry_out_copy(launch: LaunchRecord, copy: BulkRecord) -> int:
    """Move the bytes of a copy, and complete its transaction at the mbarrier."""
    cta = CtaRecord(copy.cta)
    warp = WarpRecord(copy.warp)
    store = copy.direction == Direction.STORE
    claimed = 0
    if copy.direction == Direction.CANCEL:
        claimed = claim_cluster(launch)
    else:
        land_global_side(launch, cta, copy)
    for rank in range(launch.cluster_size):
        owner = CtaRecord(destination_owner(cta, copy, rank))
        if owner.address:
            land_shared_side(launch, cta, warp, copy, owner)
            if copy.direction == Direction.CANCEL:
                store64(owner.shared + copy.offset, response_word(launch, claimed, 0))
                store64(owner.shared + copy.offset + 8, response_word(launch, claimed, 1))
            else:
                for row in range(copy.rows):
                    move_row(copy, owner.shared, row, row_address(copy, row))
            tracking = CtaRecord(tracking_block(cta, copy, owner))
            tracker = NO_BARRIER if store else tracking.shared + copy.barrier
            record_barrier_event(launch, owner, warp.index, EventKind.LAND, copy.site, tracking, tracker, copy.total)
            if not store and not complete_tx(launch, tracking, tracker, copy.total, cta, warp.index):
                launch.fault_detail = CopyRule.NO_MBARRIER
                defer_fault(launch, cta, warp, BAD_COPY, copy.site, copy.lane, tracker, 8)
    # A load is visible once its mbarrier is signaled; a store only after a wait, or at the end of its block.
    copy.state = MOVED if store else FREE
    return 0


@native
def finish_bulk(launch: LaunchRecord, copy: BulkRecord) -> None:
    """Carry out a copy, if that has not happened yet, and make its result visible."""
    if copy.state == ISSUED:
        perform_copy(launch.address, copy.address)
    if copy.state == MOVED:
        cta = CtaRecord(copy.cta)
        mark_global_written(launch, cta, copy)
        copy.state = FREE


@native
def finish_one_bulk(launch: LaunchRecord, cta: CtaRecord) -> int:
    """Carry out one copy that a warp of the block may wait for, as no warp can go on. Return whether there was one.

    A copy that no warp waits for may take longer than all others, so a wait for one copy must not complete another.
    Copies to global memory are awaited only by the thread that issued them; see ``wait_bulk``.
    """
    best_priority = 0
    best_copy = 0
    # Priority 2 for a copy that a warp waits for, 1 for any other one.
    for number in range(launch.bulk_ended, launch.bulk_begun):
        copy = BulkRecord(bulk_slot(launch, number))
        if copy.state == ISSUED and copy.cta == cta.address and copy.direction != Direction.STORE:
            priority = 1 + is_copy_awaited(launch, cta, copy)
            # Copies complete in any order. In a reverse order, the youngest of equal copies goes first.
            if priority > best_priority or (priority == best_priority and launch.reverse):
                best_priority = priority
                best_copy = copy.address
    if best_priority:
        perform_copy(launch.address, best_copy)
        retire_bulk(launch)
    return best_priority


@native
def is_copy_awaited(launch: LaunchRecord, cta: CtaRecord, copy: BulkRecord) -> int:
    """Return whether a warp of a destination block waits for the mbarrier that tracks a copy."""
    for rank in range(launch.cluster_size):
        owner = CtaRecord(destination_owner(cta, copy, rank))
        if owner.address:
            tracking = CtaRecord(tracking_block(cta, copy, owner))
            for warp_index in range(tracking.warp_count):
                warp = WarpRecord(tracking.warps + warp_index * tracking.warp_stride)
                if warp.status == Status.SUSPENDED and warp.awaited_mbarrier == tracking.shared + copy.barrier:
                    return 1
    return 0


@native
def finish_all_bulk(launch: LaunchRecord, cta: CtaRecord) -> None:
    """Finish the copies of a block that has exited. A copy that has yet to read the block's shared memory is a
    fault.

    Another block may get that memory at once. A copy that has read its source may finish later.
    """
    for number in range(launch.bulk_ended, launch.bulk_begun):
        copy = BulkRecord(bulk_slot(launch, number))
        if copy.cta == cta.address:
            if copy.state == ISSUED and copy.direction != Direction.LOAD and copy.direction != Direction.CANCEL:
                set_conflict(launch, BLOCK_EXITED, launch.time)
                defer_fault(
                    launch, cta, WarpRecord(copy.warp), RACE, copy.site, copy.lane, shared_source(cta, copy), PIECE
                )
            finish_bulk(launch, copy)
    retire_bulk(launch)


@native
def shared_source(cta: CtaRecord, copy: BulkRecord) -> int:
    """Return the first address in shared memory that a copy to global memory, or to another block, reads."""
    if copy.direction == Direction.STORE:
        return cta.shared + copy.offset
    return row_address(copy, 0)


@native
def commit_bulk(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, argument: int, mask: int) -> int:
    """Make the copies that each lane has issued since its last commit a group."""
    while mask:
        lane = lowest_bit(mask)
        mask &= mask - 1
        store32(warp.address + GROUPS + 4 * lane, load32(warp.address + GROUPS + 4 * lane) + 1)
    return 0


@native
def wait_bulk(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, argument: int, mask: int) -> int:
    """Wait until each lane has at most ``argument`` groups in flight; with READ, until their sources are read."""
    allowed = argument & LOW_WORD
    for number in range(launch.bulk_ended, launch.bulk_begun):
        copy = BulkRecord(bulk_slot(launch, number))
        # Groups belong to a thread, so each lane waits for its own (PTX ISA, cp.async.bulk.wait_group).
        is_own_copy = copy.warp == warp.address and copy.direction == Direction.STORE and mask >> copy.lane & 1
        if is_own_copy and copy.group < load32(warp.address + GROUPS + 4 * copy.lane) - allowed:
            # Without READ, the results have to be visible as well.
            if argument == allowed:
                finish_bulk(launch, copy)
            elif copy.state == ISSUED:
                perform_copy(launch.address, copy.address)
    retire_bulk(launch)
    return 0


@native
def destination_owner(cta: CtaRecord, copy: BulkRecord, rank: int) -> int:
    """Return the record of the block of a rank if a copy goes to its shared memory, or comes from it; else 0."""
    if not copy.targets:
        return copy.owner if rank == 0 else 0
    return load64(cta.peers + 8 * rank) if copy.targets >> rank & 1 else 0


@native
def tracking_block(cta: CtaRecord, copy: BulkRecord, owner: CtaRecord) -> int:
    """Return the record of the block whose mbarrier tracks what a copy writes to the block ``owner``."""
    if copy.pair:
        return load64(cta.peers + 8 * ((owner.rank & ~1) | copy.pair - 1))
    return owner.address


@native
def retire_bulk(launch: LaunchRecord) -> None:
    """Free the records of the oldest copies that are complete."""
    oldest = BulkRecord(bulk_slot(launch, launch.bulk_ended))
    # Copies complete in any order, but the ring has room only behind its oldest one.
    while launch.bulk_ended < launch.bulk_begun and oldest.state == FREE:
        launch.bulk_ended += 1
        oldest = BulkRecord(bulk_slot(launch, launch.bulk_ended))


@native
def bulk_slot(launch: LaunchRecord, number: int) -> int:
    """Return the address of the launch's record of its copy of that number."""
    return launch.bulk + number % BULKS * BulkRecord.size
