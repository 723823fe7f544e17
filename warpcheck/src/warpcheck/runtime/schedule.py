"""The loop over thread blocks and their warps. What it cannot settle it leaves to ``host``.

Blocks run one after another, and a warp runs until it waits, leaves, polls without success or uses up its time slice.
The order is the same in every run, or another one (see order), so that a kernel that depends on it is found. A block
that cannot proceed waits for another one: it stays resident, and the host gives the others their turn. All blocks
of a cluster begin together, all of a cooperative grid at the very beginning, and they take turns.

A warp is suspended by an instruction that has to wait: for a barrier in memory, for that of the cluster, for copies,
for registers. It tries again when anything was signaled since. When no warp of a block can go on, a copy lands
that one of them waits for; copies land no earlier, so that a kernel that does not wait for them reads what they have
not written yet.
When no block can go on either, time is up: ``try_wait`` says no, and other lanes of the warps have their turn.
"""

from __future__ import annotations

from warpcheck.events import EventKind
from warpcheck.layout import LANES, NOWHERE, UNWRITTEN, WRITTEN, Status
from warpcheck.native import external, load64, native, store8, store32, store64
from warpcheck.runtime.bulk import finish_all, finish_one
from warpcheck.runtime.clusters import meet_in_cluster
from warpcheck.runtime.happens_before import PLANE, ROW, WARPS
from warpcheck.runtime.mbarriers import MBARRIERS
from warpcheck.runtime.meeting import BARRIERS, all_wait_together, arrive_at, meet, wait_at
from warpcheck.runtime.order import place_at, whose_turn
from warpcheck.runtime.reads import begin_reads
from warpcheck.runtime.recorder import NO_BARRIER, NO_SITE, note, note_stop
from warpcheck.runtime.records import (
    WARP,
    BarrierRecord,
    CtaRecord,
    LaunchRecord,
    MbarrierRecord,
    WarpRecord,
    field_offset,
)

__all__ = ["DONE", "HOST", "PASSES", "WAITS", "run_grid"]

SLICE = 1 << 20  # lane-instructions that a warp may run before another one has its turn
POLLING = 1 << 12  # what a slice costs at least that a warp has given up
ROUNDS = 4  # in which no warp of a block gets anywhere, before it counts as waiting for another block
DONE, HOST = -1, -2  # the block is done; the host must look
PASSES, WAITS = -3, -4  # it is the turn of another block; it is, and all that this one did was poll, sleep or wait
PCS = field_offset(WARP, "pcs")


@external
def run(launch: int, cta: int, warp: int) -> int:
    """The kernel's machine code: run a warp until it stops; returns its Status."""
    raise NotImplementedError


@native
def run_grid(launch: LaunchRecord, cta: CtaRecord) -> int:
    """Run the blocks that are left, one after another in place of one; of a cluster, only the one that is there.

    Returns DONE, HOST, PASSES, WAITS, or the number of a warp whose status only the host can deal with. Called again,
    it goes on.
    """
    while cta.block_began or launch.block_next < launch.block_count:
        if not cta.block_began:
            begin_cluster(launch, cta)
        stopped = run_block(launch, cta)
        if stopped != DONE:
            return stopped
        cta.block_began = 0
        if launch.cluster_size > 1:
            return DONE
    return DONE


@native
def begin_cluster(launch: LaunchRecord, cta: CtaRecord) -> None:
    """The next blocks of the grid: one, or those of a cluster. The turn is that of ``cta``."""
    size, first = launch.cluster_size, launch.block_next
    launch.block_next += size
    for rank in range(size):
        peer = CtaRecord(load64(cta.peers + 8 * rank))
        begin_block(launch, peer, first + (size - 1 - rank if launch.reverse == 1 else rank))
    if size > 1:
        begin_turn(launch, cta)


@native
def begin_turn(launch: LaunchRecord, cta: CtaRecord) -> None:
    """From now on it is this block that does what is done."""
    launch.time += 1
    cta.turn_began = launch.time
    store64(launch.turns + 8 * launch.turn_count, launch.time)
    store64(launch.turn_blocks + 8 * launch.turn_count, cta.block_number)
    launch.turn_count += 1


@native
def begin_block(launch: LaunchRecord, cta: CtaRecord, number: int) -> None:
    """A block of the grid: its warps at the beginning, its shared and local memory unwritten."""
    cta.block_number = number
    begin_turn(launch, cta)
    cta.block_began = launch.time
    cta.clock_began = launch.clock
    cta.met = launch.time
    cta.acquired = 0
    cta.vain_polls = 0
    place_block(launch, cta, number)
    for byte in range(launch.shared_bytes):
        store8(cta.shared_state + byte, UNWRITTEN)
    for byte in range(launch.reserved, launch.reserved + launch.reserved_bytes):
        store8(cta.shared + byte, 0)
        store8(cta.shared_state + byte, WRITTEN)
    for byte in range(launch.local_total):
        store8(cta.local_state + byte, UNWRITTEN)
    for at in range(BARRIERS):
        barrier = BarrierRecord(cta.barriers + at * BarrierRecord.size)
        barrier.arrived = 0
        barrier.arrivals = 0
    if cta.mbarriers:
        for at in range(MBARRIERS):
            store64(cta.mbarriers + at * MbarrierRecord.size, 0)
    for word in range(2 * WARPS * launch.cluster_size):
        store64(cta.clocks + 8 * word, 0)
    cta.registers_left = 0
    cta.in_flight = 0
    for index in range(cta.warp_count):
        begin_warp(launch, cta, WarpRecord(cta.warps + index * cta.warp_stride))


@native
def place_block(launch: LaunchRecord, cta: CtaRecord, number: int) -> None:
    """Where the block of a number lies in the grid, and in its cluster."""
    place = place_at(number, launch.block_count, launch.cluster_size, launch.reverse)
    if launch.places:
        place = load64(launch.places + 8 * number)
        if number == 0 or place != load64(launch.places + 8 * number - 8) + 1:
            launch.stretch_began = launch.time
    cluster, rank = place // launch.cluster_size, place % launch.cluster_size
    columns, rows = launch.nctaid_x // launch.cluster_x, launch.nctaid_y // launch.cluster_y
    cta.rank = rank
    cta.clusterid_x = cluster % columns
    cta.clusterid_y = cluster // columns % rows
    cta.clusterid_z = cluster // (columns * rows)
    cta.cluster_ctaid_x = rank % launch.cluster_x
    cta.cluster_ctaid_y = rank // launch.cluster_x % launch.cluster_y
    cta.cluster_ctaid_z = rank // (launch.cluster_x * launch.cluster_y)
    cta.ctaid_x = cta.clusterid_x * launch.cluster_x + cta.cluster_ctaid_x
    cta.ctaid_y = cta.clusterid_y * launch.cluster_y + cta.cluster_ctaid_y
    cta.ctaid_z = cta.clusterid_z * launch.cluster_z + cta.cluster_ctaid_z


@native
def begin_warp(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord) -> None:
    """All lanes at the beginning, knowing of nobody else."""
    warp.status = Status.READY
    warp.live = warp.threads
    warp.left_behind = 0
    warp.polls = 0
    warp.asking = 0
    begin_reads(cta, warp)
    warp.copies_ended = warp.copies_begun
    warp.fences = 0
    warp.expired = 0
    warp.cluster_arrived = 0
    warp.waits_at = 0
    warp.registers = launch.registers
    for lane in range(LANES):
        store32(warp.address + PCS + 4 * lane, 0 if warp.threads >> lane & 1 else NOWHERE)
    for plane in range(launch.cluster_size):
        for other in range(cta.warp_count):
            known = launch.time if warp.index == other and plane == 0 else 0
            store64(cta.known + PLANE * plane + ROW * warp.index + 8 * other, known)


@native
def run_block(launch: LaunchRecord, cta: CtaRecord) -> int:
    """Give each warp that can run its turn, until all have left. Returns what run_grid does."""
    idle, since, expired = 0, launch.time, 0
    while True:
        running, waiting, preempted, polling, suspended = 0, 0, 0, 0, 0
        for turn in range(cta.warp_count):
            number = whose_turn(turn, cta.warp_count, launch.reverse)
            warp = WarpRecord(cta.warps + number * cta.warp_stride)
            again = warp.status == Status.SUSPENDED and (warp.expired or warp.suspended_at != launch.time)
            if again or warp.status == Status.READY or warp.status == Status.PREEMPTED:
                running += run_slice(launch, cta, warp) != 0
                if warp.status >= Status.FAULT:
                    return number
                preempted += warp.status == Status.PREEMPTED
                polling += warp.status == Status.PREEMPTED and (launch.spared != 0 or launch.budget >= 0)
                if warp.status == Status.BARRIER:
                    wait_at(launch, cta, warp)
                elif warp.status == Status.ARRIVED:
                    arrive_at(launch, cta, warp)
            waiting += warp.status == Status.BARRIER
            suspended += warp.status == Status.SUSPENDED
        if running and launch.left < 0:
            return HOST
        if running:
            idle = idle + 1 if preempted == running else 0
            if (launch.cooperative and not suspended) or idle == ROUNDS:
                return WAITS if polling == running else PASSES
        elif suspended:
            if not finish_one(launch, cta) and not meet_in_cluster(launch, cta):
                if expired or not launch.expires:
                    return WAITS if launch.time == since else PASSES
                since, expired = launch.time, 1
                expire(cta)
        elif waiting:
            if cta.suspect_address or not all_wait_together(cta):
                return HOST
            meet(launch, cta)
            if cta.vain_polls >= ROUNDS:  # a loop around a poll and a barrier: the one polled may have yet to run
                cta.vain_polls = 0
                return PASSES
        else:
            finish_all(launch, cta)
            return HOST if cta.suspect_address else DONE
    return DONE


@native
def expire(cta: CtaRecord) -> None:
    """The time is up of all warps that are suspended."""
    for number in range(cta.warp_count):
        warp = WarpRecord(cta.warps + number * cta.warp_stride)
        warp.expired = warp.status == Status.SUSPENDED


@native
def run_slice(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord) -> int:
    """Run a warp until it stops, or its slice of time is used up, or what the host has granted.

    Returns 0 for one that has only found that it still has to wait: that costs nothing.
    """
    granted = launch.left + 1 if launch.left < SLICE else SLICE
    launch.budget = granted
    launch.spared = 0
    launch.clock += granted
    launch.running = 1
    events = launch.event_count
    note(launch, cta, warp.index, EventKind.RUN, NO_SITE, NO_BARRIER, 0, 0)
    warp.status = run(launch.address, cta.address, warp.address)
    launch.running = 0
    warp.expired = 0
    warp.suspended_at = launch.time
    launch.clock -= launch.budget
    used = granted - launch.budget - launch.spared
    launch.left -= max(used, POLLING) if launch.spared else used
    if granted == launch.budget:
        launch.event_count = events
    else:
        note_stop(launch, cta, warp)
    return granted != launch.budget
