"""The loop over thread blocks and their warps. It leaves to ``host`` what it cannot decide.

Blocks run one after another, and a warp runs until it waits, exits, polls without success or uses up its slice. The
order is the same in every run, or another one (see ``schedule_order``), so that a kernel that depends on it is found. A
block that cannot proceed waits for another block: it stays resident, and the host gives the others their turn. All
blocks of a cluster begin together, all blocks of a cooperative grid at the very beginning, and they take turns. In the
strided order, a block also gives way at each barrier if it has used an atomic or a strong access before.

A warp is suspended by an instruction that has to wait: for an mbarrier, for the barrier of the cluster, for copies, for
registers. It tries again when ``launch.time`` has advanced. When no warp of a block can go on, a copy lands that one of
them waits for; copies land no earlier, so that a kernel that does not wait for them reads the old contents.

When no block can go on either, suspended waits time out: ``try_wait`` returns false, and other lanes of the warps run.

    a warp's status         next step in run_block
    READY, PREEMPTED        run it for a slice
    SUSPENDED               run it again if the time has advanced, or its wait times out
    BARRIER, ARRIVED        count it at its barrier, which may open
    FAULT, STUCK, HOST      return its number: the host has to look
"""

from __future__ import annotations

from warpcheck.events import EventKind
from warpcheck.layout import LANES, NOWHERE, UNWRITTEN, WRITTEN, Status
from warpcheck.native import extern, fill_bytes, load64, native, store8, store32, store64
from warpcheck.runtime.bulk import finish_all_bulk, finish_one_bulk
from warpcheck.runtime.clusters import open_cluster_barrier
from warpcheck.runtime.cta_barrier import (
    BARRIERS,
    all_wait_together,
    arrive_at,
    has_one_thread_count,
    open_for_all,
    wait_at,
)
from warpcheck.runtime.event_recorder import NO_BARRIER, NO_SITE, record_event, record_stop
from warpcheck.runtime.happens_before import PLANE_BYTES, ROW_BYTES, WARPS
from warpcheck.runtime.launch_control import grid_index_of
from warpcheck.runtime.mbarriers import MBARRIERS
from warpcheck.runtime.memory_transactions import NO_CHUNK, ChunkRecord
from warpcheck.runtime.records import (
    WARP,
    BarrierRecord,
    CtaRecord,
    LaunchRecord,
    MbarrierRecord,
    WarpRecord,
    field_offset,
)
from warpcheck.runtime.schedule_order import scheduled_index
from warpcheck.runtime.sync import let_dependents_begin
from warpcheck.runtime.tensor_allocation import begin_tensor_memory, check_tensor_memory_freed
from warpcheck.runtime.tensor_jobs import (
    finish_all_tensor_jobs,
    finish_awaited_commit,
    finish_oldest_tensor_job,
)
from warpcheck.runtime.wgmma_operands import begin_reads

__all__ = ["DONE", "HOST", "INTERLEAVES", "PAUSES", "SLICE", "YIELDS", "YIELDS_IDLE", "YIELDS_SPINNING", "run_grid"]

SLICE = 1 << 20  # lane-instructions that a warp may run before another one has its turn
MIN_POLL_COST = 1 << 12  # lane-instructions charged at least for a slice that a polling warp has given up
IDLE_ROUNDS = 4  # rounds without progress of any warp after which a block counts as waiting for another block
DONE = -1  # the block has exited
HOST = -2  # the host has to look
YIELDS = -3  # it is the turn of another block
YIELDS_IDLE = -4  # the same, and all that this block did was poll, sleep or wait
INTERLEAVES = -5  # the block has passed a barrier, and could go on
PAUSES = -6  # a block has exited, and the launch has come to launch.pause_clock
YIELDS_SPINNING = -7  # as YIELDS_IDLE, in a loop that has a barrier and ends by the polled value alone
PCS = field_offset(WARP, "pcs")


@extern
def run(launch: int, cta: int, warp: int) -> int:
    """Run a warp until it stops, and return its Status: the kernel's machine code."""
    raise NotImplementedError


@native
def run_grid(launch: LaunchRecord, cta: CtaRecord) -> int:
    """Run the remaining blocks, one after another in the record ``cta``; for a cluster, only the block that is
    there.

    Return DONE, HOST, YIELDS, YIELDS_IDLE, YIELDS_SPINNING, INTERLEAVES, PAUSES, or the number of a warp whose status
    the host has to handle. Called again, it goes on.
    """
    while cta.block_began or launch.block_next < launch.block_stop:
        if not cta.block_began:
            begin_cluster(launch, cta)
        stopped = run_block(launch, cta)
        if stopped != DONE:
            return stopped
        store64(launch.acquired_at_exit + 8 * cta.block_number, cta.acquired_at)
        launch.clock_before_exit += launch.clock - cta.clock_began
        if not cta.dependents_launched:
            let_dependents_begin(launch, cta, launch.clock)
        cta.block_began = 0
        if launch.cluster_size > 1:
            return DONE
        if launch.clock >= launch.pause_clock:
            return PAUSES
    return DONE


@native
def begin_cluster(launch: LaunchRecord, cta: CtaRecord) -> None:
    """Begin the next block of the grid, or the next cluster; the turn is that of ``cta``."""
    size = launch.cluster_size
    first = launch.block_next
    launch.block_next += size
    for rank in range(size):
        peer = CtaRecord(load64(cta.peers + 8 * rank))
        # The blocks of a cluster stay together in every order: they need each other.
        begin_block(launch, peer, first + (size - 1 - rank if launch.reverse == 1 else rank))
    if size > 1:
        begin_turn(launch, cta)


@native
def begin_turn(launch: LaunchRecord, cta: CtaRecord) -> None:
    """Record that the accesses from now on are those of this block."""
    launch.time += 1
    cta.turn_began = launch.time
    # The turns are the index from times to blocks: an entry of the history has a time and no block.
    store64(launch.turns + 8 * launch.turn_count, launch.time)
    store64(launch.turn_blocks + 8 * launch.turn_count, cta.block_number)
    launch.turn_count += 1


@native
def begin_block(launch: LaunchRecord, cta: CtaRecord, number: int) -> None:
    """Begin a block of the grid: reset its warps, and mark its shared and local memory as unwritten."""
    cta.block_number = number
    begin_turn(launch, cta)
    cta.block_began = launch.time
    cta.clock_began = launch.clock
    cta.last_barrier_time = launch.time
    cta.acquired_at = 0
    cta.grids_awaited_at = 0
    cta.dependents_launched = 0
    cta.poll_timeouts = 0
    cta.spin_timeouts = 0
    cta.idle_rounds = 0
    set_block_coordinates(launch, cta, number)
    if launch.shared_fill >= 0:
        for byte in range(launch.shared_bytes):
            store8(cta.shared + byte, launch.shared_fill)
            store8(cta.shared_state + byte, WRITTEN)
    else:
        for byte in range(launch.shared_bytes):
            store8(cta.shared_state + byte, UNWRITTEN)
    # The driver initializes the shared memory that it reserves, so reading it is no fault.
    for byte in range(launch.reserved, launch.reserved + launch.reserved_bytes):
        store8(cta.shared + byte, 0)
        store8(cta.shared_state + byte, WRITTEN)
    for byte in range(launch.local_total):
        store8(cta.local_state + byte, UNWRITTEN)
    for at in range(BARRIERS):
        barrier = BarrierRecord(cta.barriers + at * BarrierRecord.size)
        barrier.arrived_warps = 0
        barrier.arrivals = 0
        barrier.threads = 0
        barrier.other_threads = 0
    if cta.mbarriers:
        for at in range(MBARRIERS):
            store64(cta.mbarriers + at * MbarrierRecord.size, 0)
    for word in range(2 * WARPS * launch.cluster_size):
        store64(cta.barrier_clocks + 8 * word, 0)
    # What a block has in registers, the next one does not have.
    for at in range(launch.chunk_count):
        store64(launch.chunks + at * ChunkRecord.size, NO_CHUNK)
    cta.registers_left = 0
    cta.copies_in_flight = 0
    cta.cancel_failed = 0
    begin_tensor_memory(launch, cta)
    for index in range(cta.warp_count):
        begin_warp(launch, cta, WarpRecord(cta.warps + index * cta.warp_stride))


@native
def set_block_coordinates(launch: LaunchRecord, cta: CtaRecord, number: int) -> None:
    """Set the coordinates of a block in the grid and in its cluster."""
    grid_index = grid_index_of(launch, number)
    if launch.sampled_blocks and (number == 0 or grid_index != load64(launch.sampled_blocks + 8 * number - 8) + 1):
        launch.stretch_began = launch.time
    cluster = grid_index // launch.cluster_size
    rank = grid_index % launch.cluster_size
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
    """Put all lanes at the entry of the kernel, ordered behind no other warp."""
    warp.status = Status.READY
    warp.live = warp.threads
    warp.exited_after_barrier = 0
    warp.polls = 0
    warp.poll_site = 0
    begin_reads(cta, warp)
    # What the block before has left in flight is no concern of this one.
    warp.copies_ended = warp.copies_begun
    warp.fence_count = 0
    warp.expired = 0
    warp.cluster_arrived = 0
    warp.grid_wait_lanes = 0
    warp.grid_waited_at = 0
    warp.awaited_mbarrier = 0
    warp.registers = launch.registers
    # A register that nothing has written holds 0, whichever block ran in this record before.
    if launch.cleared_bytes:
        fill_bytes(warp.address + WARP.itemsize, 0, launch.cleared_bytes)
    for lane in range(LANES):
        store32(warp.address + PCS + 4 * lane, 0 if warp.threads >> lane & 1 else NOWHERE)
    for plane in range(launch.cluster_size):
        for other_warp in range(cta.warp_count):
            # A warp knows its own past only: 0 is before everything.
            time = launch.time if warp.index == other_warp and plane == 0 else 0
            store64(cta.vector_clock + PLANE_BYTES * plane + ROW_BYTES * warp.index + 8 * other_warp, time)


@native
def run_block(launch: LaunchRecord, cta: CtaRecord) -> int:
    """Run each warp that can run, in turns, until all have exited. Return as run_grid does."""
    idle = cta.idle_rounds
    last_progress = launch.time
    expired = 0
    while True:
        running = 0
        waiting = 0
        preempted = 0
        polling = 0
        suspended = 0
        for turn in range(cta.warp_count):
            warp_index = scheduled_index(turn, cta.warp_count, launch.reverse)
            warp = WarpRecord(cta.warps + warp_index * cta.warp_stride)
            # A suspended warp tries again only if anything was signaled since, so waiting costs no instructions.
            may_retry = warp.status == Status.SUSPENDED and (warp.expired or warp.suspended_at != launch.time)
            if may_retry or warp.status == Status.READY or warp.status == Status.PREEMPTED:
                running += run_slice(launch, cta, warp) != 0
                if warp.status >= Status.FAULT:
                    return warp_index
                preempted += warp.status == Status.PREEMPTED
                polling += warp.status == Status.PREEMPTED and (launch.unused_budget != 0 or launch.budget >= 0)
                if warp.status == Status.BARRIER or warp.status == Status.ARRIVED:
                    if not has_one_thread_count(cta, warp):
                        warp.status = Status.MISCOUNTED
                        return warp_index
                    if warp.status == Status.BARRIER:
                        wait_at(launch, cta, warp)
                    else:
                        arrive_at(launch, cta, warp)
            waiting += warp.status == Status.BARRIER
            suspended += warp.status == Status.SUSPENDED
        # A round is over. Some warp ran; or all are suspended; or all wait at barriers; or all have exited.
        if running:
            idle = idle + 1 if preempted == running else 0
            # On one core, the count begins again when the host has had its turn. A worker has other turns, and in them
            # the block must not go on where one core would have let another block run. So a worker counts through its
            # turns, and gives up such a block, even one that the host's turn would have kept from yielding.
            if launch.is_worker:
                cta.idle_rounds = idle
                if idle == IDLE_ROUNDS:
                    return YIELDS
            if launch.host_budget < 0:
                return HOST
            # Cooperative blocks run in lockstep, but in strided order each runs until it has to wait: otherwise a
            # flag that an earlier launch has set would never let a block run ahead.
            takes_turns = launch.cooperative and launch.reverse <= 1 and not suspended
            if takes_turns or idle == IDLE_ROUNDS:
                return YIELDS_IDLE if polling == running else YIELDS
        elif suspended:
            # First what is due anyway: a product, a copy that lands, the barrier of the cluster. Then other blocks run.
            # Only when all blocks wait (timeouts_expire) are products executed that no warp waits for, and do suspended
            # waits time out, once.
            if (
                not finish_awaited_commit(launch, cta)
                and not finish_one_bulk(launch, cta)
                and not open_cluster_barrier(launch, cta)
                and not (launch.timeouts_expire and finish_oldest_tensor_job(launch, cta))
            ):
                if expired or not launch.timeouts_expire:
                    return YIELDS_IDLE if launch.time == last_progress else YIELDS
                last_progress = launch.time
                expired = 1
                expire_waits(cta)
        elif waiting:
            # The barrier is where deferred faults are reported; the host also decides about threads that have exited.
            if cta.deferred_address or not all_wait_together(cta):
                return HOST
            open_for_all(launch, cta)
            # A loop around a poll and a barrier: the block that has to set the flag may have yet to run.
            if cta.poll_timeouts >= IDLE_ROUNDS:
                spins = cta.spin_timeouts == cta.poll_timeouts and not launch.is_worker
                cta.poll_timeouts = 0
                cta.spin_timeouts = 0
                return YIELDS_SPINNING if spins else YIELDS
            # A block that may communicate with others lets them catch up: else each block of the grid would find that
            # all blocks before it have finished.
            if launch.reverse > 1 and cta.acquired_at and launch.cluster_size == 1 and not launch.cooperative:
                return INTERLEAVES
        else:
            finish_all_bulk(launch, cta)
            finish_all_tensor_jobs(launch, cta)
            check_tensor_memory_freed(launch, cta)
            return HOST if cta.deferred_address else DONE
    return DONE


@native
def expire_waits(cta: CtaRecord) -> None:
    """Let the waits of all suspended warps time out."""
    for warp_index in range(cta.warp_count):
        warp = WarpRecord(cta.warps + warp_index * cta.warp_stride)
        warp.expired = warp.status == Status.SUSPENDED


@native
def run_slice(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord) -> int:
    """Run a warp until it stops, or its slice or the host's budget is used up.

    Return 0 for a warp that has only found that it still has to wait: that costs nothing.
    """
    # A slice does not depend on when the host had its turn: how the warps of a block interleave is decided by the block
    # alone. Only close to the limit of the launch, where it may end in the middle of a block, slices are cut to it.
    granted = SLICE
    if launch.limits_slices and launch.host_budget < SLICE:
        granted = launch.host_budget + 1
    launch.budget = granted
    launch.unused_budget = 0
    launch.clock += granted
    launch.running = 1
    event_count = launch.event_count
    record_event(launch, cta, warp.index, EventKind.RUN, NO_SITE, NO_BARRIER, 0, 0)
    warp.status = run(launch.address, cta.address, warp.address)
    launch.running = 0
    warp.expired = 0
    warp.suspended_at = launch.time
    # What is left of the slice was not used. A polling warp pays for at least MIN_POLL_COST, so that polling ends.
    launch.clock -= launch.budget
    used = granted - launch.budget - launch.unused_budget
    launch.host_budget -= max(used, MIN_POLL_COST) if launch.unused_budget else used
    if granted == launch.budget:
        launch.event_count = event_count
    else:
        record_stop(launch, cta, warp)
    return granted != launch.budget
