"""Barriers of a thread block that are at fault, or that the guide does not promise to work."""

from __future__ import annotations

import numpy as np

from warpcheck.layout import Status
from warpcheck.runtime.cta import Cta
from warpcheck.runtime.faults import Faults
from warpcheck.runtime.launch import Grid
from warpcheck.runtime.meeting import open_barrier
from warpcheck.runtime.records import CtaRecord, LaunchRecord

__all__ = ["settle_barrier"]


def settle_barrier(grid: Grid, cta: Cta, faults: Faults) -> None:
    """No warp can run: let those go on that wait for the whole block. Raises Fault where that cannot be."""
    waiting = np.flatnonzero(cta.warps["status"] == Status.BARRIER).tolist()
    whole = [warp for warp in waiting if not cta.warps[warp]["barrier_threads"]]
    if waiting and not whole:
        raise faults.barrier(waiting[0], "waits at a barrier that too few threads of its block reach")
    first = min((int(cta.warps[warp]["barrier"]) for warp in whole), default=0)
    here = [warp for warp in whole if cta.warps[warp]["barrier"] == first]
    if here:
        _require_all(grid, cta, here, faults)
    faults.raise_suspect()
    open_barrier(LaunchRecord(grid.address), CtaRecord(cta.address), sum(1 << warp for warp in here))


def _require_all(grid: Grid, cta: Cta, here: list[int], faults: Faults) -> None:
    """A barrier without a count is for the whole block; one for aligned threads is at one place in the source.

    A GPU does not wait for warps that have left. They may leave before it, which the guide does not promise to work,
    but not behind it.
    """
    warps = cta.warps
    gone = warps["threads"] & ~warps["live"]
    block = int(warps[here[0]]["barrier_block"])
    skipped = (gone != 0) & ((warps["live"] != 0) | (warps["left_behind"] != 0))
    if skipped.any():
        warp = int(skipped.argmax())
        raise faults.skipped_barrier(block, warp, int(gone[warp]))
    if gone.any():
        warp = int((gone != 0).argmax())
        grid.warn(faults.skipped_barrier(block, warp, int(gone[warp])))
    places = [int(warps[warp]["barrier_block"]) for warp in here]
    apart = len(set(places)) > 1 and any(_is_aligned(grid.lowered.blocks[place][0][1]) for place in places)
    if len(here) < (warps["live"] != 0).sum() or apart:
        absent = (warp for warp in range(len(warps)) if warp not in here and warps["live"][warp])
        raise faults.other_barrier(here[places.index(min(places))], next(absent, here[places.index(max(places))]))


def _is_aligned(name: str) -> bool:
    """Whether all threads of a warp have to execute a barrier together, as those of __syncthreads have to."""
    return name.lstrip("@").startswith("bar.") or "aligned" in name
