"""Bulk and tensor copies (TMA): issued by a thread, carried out as late as possible by somebody else.

An issued copy waits in a ring of the launch's. It is carried out when nothing else can run, when a thread waits for its
group, or when its block ends. Copies of one block may complete in any order: the one that a warp waits for does so
first, of several the oldest, and in reverse order the newest. In a third order, whose steps are a prime, they complete
at once. Until then the bytes that a copy writes are PENDING: whoever reads them has not waited. What it reads, it reads
then: a thread that writes there in between has not waited either; see ``box_checks``. ``bulk_issue`` issues them.
"""

from __future__ import annotations

from warpcheck.errors import FAULT_KINDS, FaultKind
from warpcheck.events import EventKind
from warpcheck.layout import Status
from warpcheck.native import external, load32, load64, lowest_bit, native, store32
from warpcheck.runtime.box_checks import land_far, land_near, settle_far
from warpcheck.runtime.boxes import PIECE, BulkRecord, Direction, move_row, row_of
from warpcheck.runtime.copy_rules import CopyRule
from warpcheck.runtime.history import EXITED, accuse
from warpcheck.runtime.mbarriers import complete_tx
from warpcheck.runtime.recorder import NO_BARRIER, note_at
from warpcheck.runtime.records import WARP, CtaRecord, LaunchRecord, WarpRecord, field_offset
from warpcheck.runtime.suspects import RACE, suspect

__all__ = [
    "BAD_COPY",
    "BULKS",
    "FREE",
    "GROUPS",
    "ISSUED",
    "READ",
    "carry_out",
    "commit_bulk",
    "finish",
    "finish_all",
    "finish_one",
    "perform_copy",
    "retire",
    "slot_of",
    "target_of",
    "wait_bulk",
]

BULKS = 1024  # copies of a launch in flight; one more carries out the oldest
FREE, ISSUED, MOVED = 0, 1, 2  # the state of a copy; MOVED once its source was read: others see the result later
BAD_COPY = FAULT_KINDS.index(FaultKind.BAD_COPY)
GROUPS = field_offset(WARP, "bulk_groups")
READ = 1 << 32  # beside the argument of a wait
LOW = 0xFFFFFFFF


@external
def perform_copy(launch: int, copy: int) -> int:
    """``carry_out``, compiled once for all that call it."""
    raise NotImplementedError


@native
def carry_out(launch: LaunchRecord, copy: BulkRecord) -> int:
    """Move the bytes of a copy, and tell the mbarrier that tracks it."""
    cta = CtaRecord(copy.cta)
    warp = WarpRecord(copy.warp)
    store = copy.direction == Direction.STORE
    land_far(launch, cta, copy)
    for rank in range(launch.cluster_size):
        home = CtaRecord(target_of(cta, copy, rank))
        if home.address:
            land_near(launch, cta, warp, copy, home)
            for row in range(copy.rows):
                move_row(copy, home.shared, row, row_of(copy, row))
            tracker = NO_BARRIER if store else home.shared + copy.barrier
            note_at(launch, home, warp.index, EventKind.LAND, copy.site, home, tracker, copy.total)
            if not store and not complete_tx(launch, home, tracker, copy.total, cta, warp.index):
                launch.fault_detail = CopyRule.NO_MBARRIER
                suspect(launch, cta, warp, BAD_COPY, copy.site, copy.lane, tracker, 8)
    copy.state = MOVED if store else FREE
    return 0


@native
def finish(launch: LaunchRecord, copy: BulkRecord) -> None:
    """Carry out a copy, if that has not been done, and let everybody see what it has written."""
    if copy.state == ISSUED:
        perform_copy(launch.address, copy.address)
    if copy.state == MOVED:
        cta = CtaRecord(copy.cta)
        settle_far(launch, cta, copy)
        copy.state = FREE


@native
def finish_one(launch: LaunchRecord, cta: CtaRecord) -> int:
    """No warp of a block can go on: carry out one of its copies that somebody may wait for. Whether there was one.

    A copy that nobody waits for may take longer than all others, so that the wait for one does not stand for another's.
    For copies to global memory only the thread waits that issued them; see ``wait_bulk``.
    """
    found, chosen = 0, 0
    for number in range(launch.bulk_ended, launch.bulk_begun):
        copy = BulkRecord(slot_of(launch, number))
        if copy.state == ISSUED and copy.cta == cta.address and copy.direction != Direction.STORE:
            wanted = 1 + is_awaited(launch, cta, copy)
            if wanted > found or (wanted == found and launch.reverse):
                found, chosen = wanted, copy.address
    if found:
        perform_copy(launch.address, chosen)
        retire(launch)
    return found


@native
def is_awaited(launch: LaunchRecord, cta: CtaRecord, copy: BulkRecord) -> int:
    """Whether a warp waits for the mbarrier that tracks a copy, in one of the blocks that it goes to."""
    for rank in range(launch.cluster_size):
        home = CtaRecord(target_of(cta, copy, rank))
        if home.address:
            for number in range(home.warp_count):
                warp = WarpRecord(home.warps + number * home.warp_stride)
                if warp.status == Status.SUSPENDED and warp.waits_at == home.shared + copy.barrier:
                    return 1
    return 0


@native
def finish_all(launch: LaunchRecord, cta: CtaRecord) -> None:
    """A block has exited: finish its copies. None may still have to read the shared memory of the block.

    Another block may be given that memory at once. A copy that has read its source may finish later.
    """
    for number in range(launch.bulk_ended, launch.bulk_begun):
        copy = BulkRecord(slot_of(launch, number))
        if copy.cta == cta.address:
            if copy.state == ISSUED and copy.direction != Direction.LOAD:
                accuse(launch, EXITED, launch.time)
                suspect(launch, cta, WarpRecord(copy.warp), RACE, copy.site, copy.lane, source_of(cta, copy), PIECE)
            finish(launch, copy)
    retire(launch)


@native
def source_of(cta: CtaRecord, copy: BulkRecord) -> int:
    """The address in shared memory that a copy to global memory, or to another block, reads first."""
    if copy.direction == Direction.STORE:
        return cta.shared + copy.offset
    return row_of(copy, 0)


@native
def commit_bulk(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, argument: int, mask: int) -> int:
    """The copies that each lane has issued since its last commit are a group."""
    while mask:
        lane = lowest_bit(mask)
        mask &= mask - 1
        store32(warp.address + GROUPS + 4 * lane, load32(warp.address + GROUPS + 4 * lane) + 1)
    return 0


@native
def wait_bulk(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, argument: int, mask: int) -> int:
    """Wait until each lane has at most ``argument`` groups in flight; with READ beside it, until their source is read.

    The thread has waited: it may write to what a copy has read.
    """
    allowed = argument & LOW
    for number in range(launch.bulk_ended, launch.bulk_begun):
        copy = BulkRecord(slot_of(launch, number))
        own = copy.warp == warp.address and copy.direction == Direction.STORE and mask >> copy.lane & 1
        if own and copy.group < load32(warp.address + GROUPS + 4 * copy.lane) - allowed:
            if argument == allowed:
                finish(launch, copy)
            elif copy.state == ISSUED:
                perform_copy(launch.address, copy.address)
    retire(launch)
    return 0


@native
def target_of(cta: CtaRecord, copy: BulkRecord, rank: int) -> int:
    """The record of the block of that rank, if a copy goes to it or comes from it; else 0."""
    if not copy.targets:
        return copy.home if rank == 0 else 0
    return load64(cta.peers + 8 * rank) if copy.targets >> rank & 1 else 0


@native
def retire(launch: LaunchRecord) -> None:
    """Free the places of the oldest copies that are done."""
    oldest = BulkRecord(slot_of(launch, launch.bulk_ended))
    while launch.bulk_ended < launch.bulk_begun and oldest.state == FREE:
        launch.bulk_ended += 1
        oldest = BulkRecord(slot_of(launch, launch.bulk_ended))


@native
def slot_of(launch: LaunchRecord, number: int) -> int:
    """Where the launch keeps its copy of that number."""
    return launch.bulk + number % BULKS * BulkRecord.size
