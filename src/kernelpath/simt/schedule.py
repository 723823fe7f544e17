"""The loop over thread blocks and their warps. What it cannot settle it leaves to ``execution``.

Blocks run one after another, and a warp until it waits, leaves or has used up its slice of time: the order is the same
in every run.
"""

from __future__ import annotations

from kernelpath.simt.layout import (
    LANES,
    NOWHERE,
    UNWRITTEN,
    WARP,
    LaunchRecord,
    Status,
    WarpRecord,
    field_offset,
)
from kernelpath.simt.native import external, native, store8, store32, store64
from kernelpath.simt.races import WARPS

__all__ = ["DONE", "HOST", "run_grid"]

SLICE = 1 << 20  # lane-instructions that a warp may run before another one has its turn
DONE, HOST = -1, -2  # the block is done; the host must look
PCS = field_offset(WARP, "pcs")


@external
def run(launch: int, warp: int) -> int:
    """The kernel's machine code: run a warp until it stops; returns its Status."""
    raise NotImplementedError


@native
def run_grid(launch: LaunchRecord, warps: int, count: int, stride: int) -> int:
    """Run the blocks that are left, ``count`` warps each with records ``stride`` bytes apart.

    Returns DONE, HOST, or the number of a warp whose status only the host can deal with. Called again, it goes on.
    """
    while launch.block_number < launch.block_count:
        if not launch.block_began:
            begin_block(launch, warps, count, stride)
        stopped = run_block(launch, warps, count, stride)
        if stopped != DONE:
            return stopped
        launch.block_number += 1
        launch.block_began = 0
    return DONE


@native
def begin_block(launch: LaunchRecord, warps: int, count: int, stride: int) -> None:
    """All warps at the beginning, shared and local memory unwritten, nobody knowing of anybody."""
    launch.time += 1
    launch.block_began = launch.time
    launch.acquired = 0
    store64(launch.began + 8 * launch.block_number, launch.time)
    launch.ctaid_x = launch.block_number % launch.nctaid_x
    launch.ctaid_y = launch.block_number // launch.nctaid_x % launch.nctaid_y
    launch.ctaid_z = launch.block_number // (launch.nctaid_x * launch.nctaid_y)
    for byte in range(launch.shared_bytes):
        store8(launch.shared_state + byte, UNWRITTEN)
    for byte in range(launch.local_total):
        store8(launch.local_state + byte, UNWRITTEN)
    for number in range(count):
        warp = WarpRecord(warps + number * stride)
        warp.status = Status.READY
        warp.live = warp.threads
        for lane in range(LANES):
            store32(warp.address + PCS + 4 * lane, 0 if warp.threads >> lane & 1 else NOWHERE)
        for other in range(count):
            store64(launch.known + 8 * (WARPS * number + other), launch.time if number == other else 0)


@native
def run_block(launch: LaunchRecord, warps: int, count: int, stride: int) -> int:
    """Give each warp that can run its turn, until all have left; DONE, HOST or the number of a warp, as in run_grid."""
    while True:
        running, waiting = 0, 0
        for number in range(count):
            warp = WarpRecord(warps + number * stride)
            if warp.status == Status.READY or warp.status == Status.PREEMPTED:
                running += 1
                launch.budget = SLICE
                launch.clock += SLICE
                warp.status = run(launch.address, warp.address)
                launch.clock -= launch.budget
                launch.left -= SLICE - launch.budget
                if warp.status > Status.PREEMPTED:
                    return number
            waiting += warp.status == Status.BARRIER
        if not running and waiting:
            if launch.suspect_address or not all_wait_together(launch, warps, count, stride):
                return HOST
            meet(launch, warps, count, stride)
        elif launch.suspect_address and not running:
            return HOST
        elif not running:
            return DONE
        elif launch.left < 0:
            return HOST
    return DONE


@native
def all_wait_together(launch: LaunchRecord, warps: int, count: int, stride: int) -> int:
    """Whether every thread of the block waits at the same place, at a barrier for all of them."""
    first = WarpRecord(warps)
    for number in range(count):
        warp = WarpRecord(warps + number * stride)
        if warp.status != Status.BARRIER or warp.live != warp.threads or warp.barrier_threads:
            return 0
        if warp.barrier_block != first.barrier_block or warp.barrier != first.barrier or warp.barrier_reduces:
            return 0
    return 1


@native
def meet(launch: LaunchRecord, warps: int, count: int, stride: int) -> None:
    """Open a barrier that all have reached: every warp knows what every other did."""
    launch.time += 1
    for number in range(count):
        warp = WarpRecord(warps + number * stride)
        warp.status = Status.READY
        for other in range(count):
            store64(launch.known + 8 * (WARPS * number + other), launch.time)
