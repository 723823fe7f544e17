"""The loop over thread blocks and their warps. What it cannot settle it leaves to ``host``.

Blocks run one after another, and a warp runs until it waits, leaves, polls without success or uses up its time slice.
The order is the same in every run, or exactly the opposite, so that a kernel that depends on one of them is found. A
block that cannot proceed waits for another one: it stays resident, and the host gives the others their turn. All blocks
of a cooperative grid are resident, and take turns from the beginning.
"""

from __future__ import annotations

from kernelpath.simt.layout import LANES, NOWHERE, UNWRITTEN, WRITTEN, Status
from kernelpath.simt.native import external, load64, native, store8, store32, store64
from kernelpath.simt.run.races import WARPS
from kernelpath.simt.run.reads import begin_reads
from kernelpath.simt.run.records import WARP, CtaRecord, LaunchRecord, WarpRecord, field_offset

__all__ = ["DONE", "HOST", "PASSES", "WAITS", "run_grid"]

SLICE = 1 << 20  # lane-instructions that a warp may run before another one has its turn
POLLING = 1 << 12  # what a slice costs at least that a warp has given up
ROUNDS = 4  # in which no warp of a block gets anywhere, before it counts as waiting for another block
DONE, HOST = -1, -2  # the block is done; the host must look
PASSES, WAITS = -3, -4  # it is the turn of another block; it is, and all that this one did was poll or sleep
PCS = field_offset(WARP, "pcs")


@external
def run(launch: int, cta: int, warp: int) -> int:
    """The kernel's machine code: run a warp until it stops; returns its Status."""
    raise NotImplementedError


@native
def run_grid(launch: LaunchRecord, cta: CtaRecord) -> int:
    """Run the blocks that are left, one after another in place of one.

    Returns DONE, HOST, PASSES, WAITS, or the number of a warp whose status only the host can deal with. Called again,
    it goes on.
    """
    while cta.block_began or launch.block_next < launch.block_count:
        if not cta.block_began:
            begin_block(launch, cta)
        stopped = run_block(launch, cta)
        if stopped != DONE:
            return stopped
        cta.block_began = 0
    return DONE


@native
def begin_block(launch: LaunchRecord, cta: CtaRecord) -> None:
    """The next block of the grid: its warps at the beginning, its shared and local memory unwritten."""
    number = launch.block_next
    launch.block_next += 1
    launch.time += 1
    cta.block_number = number
    cta.block_began = launch.time
    cta.turn_began = launch.time
    cta.clock_began = launch.clock
    cta.met = launch.time
    cta.acquired = 0
    store64(launch.turns + 8 * launch.turn_count, launch.time)
    store64(launch.turn_blocks + 8 * launch.turn_count, number)
    launch.turn_count += 1
    place = launch.block_count - 1 - number if launch.reverse else number
    if launch.places:
        place = load64(launch.places + 8 * number)
        if number == 0 or place != load64(launch.places + 8 * number - 8) + 1:
            launch.stretch_began = launch.time
    cta.ctaid_x = place % launch.nctaid_x
    cta.ctaid_y = place // launch.nctaid_x % launch.nctaid_y
    cta.ctaid_z = place // (launch.nctaid_x * launch.nctaid_y)
    for byte in range(launch.shared_bytes):
        store8(cta.shared_state + byte, UNWRITTEN)
    for byte in range(launch.reserved, launch.reserved + launch.reserved_bytes):
        store8(cta.shared + byte, 0)
        store8(cta.shared_state + byte, WRITTEN)
    for byte in range(launch.local_total):
        store8(cta.local_state + byte, UNWRITTEN)
    for index in range(cta.warp_count):
        begin_warp(launch, cta, WarpRecord(cta.warps + index * cta.warp_stride))


@native
def begin_warp(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord) -> None:
    """All lanes at the beginning, knowing of nobody else."""
    warp.status = Status.READY
    warp.live = warp.threads
    warp.left_behind = 0
    warp.polls = 0
    warp.asking = 0
    begin_reads(cta, warp)
    for lane in range(LANES):
        store32(warp.address + PCS + 4 * lane, 0 if warp.threads >> lane & 1 else NOWHERE)
    for other in range(cta.warp_count):
        store64(cta.known + 8 * (WARPS * warp.index + other), launch.time if warp.index == other else 0)


@native
def run_block(launch: LaunchRecord, cta: CtaRecord) -> int:
    """Give each warp that can run its turn, until all have left. Returns what run_grid does."""
    idle = 0
    while True:
        running, waiting, preempted, polling = 0, 0, 0, 0
        for turn in range(cta.warp_count):
            number = cta.warp_count - 1 - turn if launch.reverse else turn
            warp = WarpRecord(cta.warps + number * cta.warp_stride)
            if warp.status == Status.READY or warp.status == Status.PREEMPTED:
                running += 1
                run_slice(launch, cta, warp)
                if warp.status > Status.PREEMPTED:
                    return number
                preempted += warp.status == Status.PREEMPTED
                polling += warp.status == Status.PREEMPTED and (launch.spared != 0 or launch.budget >= 0)
            waiting += warp.status == Status.BARRIER
        if not running and waiting:
            if cta.suspect_address or not all_wait_together(cta):
                return HOST
            meet(launch, cta)
        elif cta.suspect_address and not running:
            return HOST
        elif not running:
            return DONE
        elif launch.left < 0:
            return HOST
        else:
            idle = idle + 1 if preempted == running else 0
            if launch.cooperative or idle == ROUNDS:
                return WAITS if polling == running else PASSES
    return DONE


@native
def run_slice(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord) -> None:
    """Run a warp until it stops, or its slice of time is used up, or what the host has granted."""
    granted = launch.left + 1 if launch.left < SLICE else SLICE
    launch.budget = granted
    launch.spared = 0
    launch.clock += granted
    warp.status = run(launch.address, cta.address, warp.address)
    launch.clock -= launch.budget
    used = granted - launch.budget - launch.spared
    launch.left -= max(used, POLLING) if launch.spared else used


@native
def all_wait_together(cta: CtaRecord) -> int:
    """Whether every thread of the block waits at the same place, at a barrier for all of them."""
    first = WarpRecord(cta.warps)
    for number in range(cta.warp_count):
        warp = WarpRecord(cta.warps + number * cta.warp_stride)
        if warp.status != Status.BARRIER or warp.live != warp.threads or warp.barrier_threads:
            return 0
        if warp.barrier_block != first.barrier_block or warp.barrier != first.barrier or warp.barrier_reduces:
            return 0
    return 1


@native
def meet(launch: LaunchRecord, cta: CtaRecord) -> None:
    """Open a barrier that all have reached: every warp knows what every other did."""
    launch.time += 1
    cta.met = launch.time
    for number in range(cta.warp_count):
        warp = WarpRecord(cta.warps + number * cta.warp_stride)
        warp.status = Status.READY
        for other in range(cta.warp_count):
            store64(cta.known + 8 * (WARPS * number + other), launch.time)
