"""Barriers of a thread block that fail, or that CUDA's programming guide does not promise to work."""

from __future__ import annotations

import numpy as np

from warpcheck.layout import Status
from warpcheck.runtime.cta import Cta
from warpcheck.runtime.cta_barrier import open_barrier
from warpcheck.runtime.faults import Faults
from warpcheck.runtime.launch import Grid
from warpcheck.runtime.records import CtaRecord, LaunchRecord

__all__ = ["settle_barrier"]


def settle_barrier(grid: Grid, cta: Cta, faults: Faults) -> None:
    """Open the barrier that all warps wait at, or raise the Fault that keeps them from running."""
    waiting = np.flatnonzero(cta.warps["status"] == Status.BARRIER).tolist()
    for_whole_block = [warp for warp in waiting if not cta.warps[warp]["barrier_threads"]]
    if waiting and not for_whole_block:
        raise faults.barrier(waiting[0], "waits at a barrier that too few threads of its block reach")
    first = min((int(cta.warps[warp]["barrier"]) for warp in for_whole_block), default=0)
    arrived = [warp for warp in for_whole_block if cta.warps[warp]["barrier"] == first]
    if arrived:
        _require_all(grid, cta, arrived, faults)
    faults.raise_deferred()
    open_barrier(LaunchRecord(grid.address), CtaRecord(cta.address), sum(1 << warp for warp in arrived))


def _require_all(grid: Grid, cta: Cta, arrived: list[int], faults: Faults) -> None:
    """Require that all threads of the block wait at one barrier; for aligned threads, at one place in the program.

    A GPU does not wait for warps that have exited. An exit before the first barrier only gives a warning, because the
    programming guide does not promise it to work; an exit after a barrier is a fault.
    """
    warps = cta.warps
    exited = warps["threads"] & ~warps["live"]
    block = int(warps[arrived[0]]["barrier_block"])
    skipped = (exited != 0) & ((warps["live"] != 0) | (warps["exited_after_barrier"] != 0))
    if skipped.any():
        warp = int(skipped.argmax())
        raise faults.skipped_barrier(block, warp, int(exited[warp]))
    if exited.any():
        warp = int((exited != 0).argmax())
        grid.warn(faults.skipped_barrier(block, warp, int(exited[warp])))
    basic_blocks = [int(warps[warp]["barrier_block"]) for warp in arrived]
    is_divergent = len(set(basic_blocks)) > 1 and any(
        _is_aligned(grid.lowered.blocks[basic_block][0][1]) for basic_block in basic_blocks
    )
    if len(arrived) < (warps["live"] != 0).sum() or is_divergent:
        absent_warps = (warp for warp in range(len(warps)) if warp not in arrived and warps["live"][warp])
        raise faults.other_barrier(
            arrived[basic_blocks.index(min(basic_blocks))],
            next(absent_warps, arrived[basic_blocks.index(max(basic_blocks))]),
        )


def _is_aligned(name: str) -> bool:
    """Return whether all threads of a warp have to execute a barrier together, as with __syncthreads."""
    return name.lstrip("@").startswith("bar.") or "aligned" in name
