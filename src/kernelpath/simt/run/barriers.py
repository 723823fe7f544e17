"""Barriers of a thread block that the scheduler leaves to the host: with a count, with a reduction, or at fault."""

from __future__ import annotations

import numpy as np

from kernelpath.simt.layout import LANES, Status
from kernelpath.simt.run.cta import Cta
from kernelpath.simt.run.faults import Faults
from kernelpath.simt.run.launch import Grid

__all__ = ["arrive", "open_barrier"]


def arrive(grid: Grid, cta: Cta, warp: int) -> None:
    """A warp arrives at a barrier without waiting there."""
    time = grid.get("time") + 1
    grid.set(time=time)
    cta.arrivals.setdefault(int(cta.warps[warp]["barrier"]), {})[warp] = time


def open_barrier(grid: Grid, cta: Cta, faults: Faults) -> None:
    """No warp can run: let those go on whose barrier is complete. Raises Fault where none is."""
    waiting = np.flatnonzero(cta.warps["status"] == Status.BARRIER).tolist()
    here = _complete(grid, cta, waiting, faults) if waiting else []
    faults.raise_suspect()
    _meet(grid, cta, here, cta.arrivals.pop(int(cta.warps[here[0]]["barrier"]), {}))
    cta.warps["barrier_value"][here] = _reduced(grid, cta, here)
    cta.warps["status"][here] = Status.READY


def _complete(grid: Grid, cta: Cta, waiting: list[int], faults: Faults) -> list[int]:
    """The warps of a barrier that all its threads have reached: one with a count, where there are both."""
    barriers = {int(cta.warps[warp]["barrier"]): not cta.warps[warp]["barrier_threads"] for warp in waiting}
    for barrier in sorted(barriers, key=lambda barrier: (barriers[barrier], barrier)):
        here = [warp for warp in waiting if cta.warps[warp]["barrier"] == barrier]
        arrived = cta.arrivals.get(barrier, {})
        expected = int(cta.warps[here[0]]["barrier_threads"])
        if not expected:
            _require_all(grid, cta, here, faults)
        if not expected or LANES * (len(here) + len(arrived)) >= expected:
            return here
    raise faults.barrier(waiting[0], "waits at a barrier that too few threads of its block reach")


def _require_all(grid: Grid, cta: Cta, here: list[int], faults: Faults) -> None:
    """A barrier without a count is for the whole block, at one place in the source.

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
    if len(here) < (warps["live"] != 0).sum() or len(set(places)) > 1:
        absent = (warp for warp in range(len(warps)) if warp not in here and warps["live"][warp])
        raise faults.other_barrier(here[0], next(absent, here[places.index(max(places))]))


def _meet(grid: Grid, cta: Cta, here: list[int], arrived: dict[int, int]) -> None:
    """All that the warps did before the barrier is now known to those that waited at it."""
    time = grid.get("time") + 1
    grid.set(time=time)
    if len(here) == len(cta.warps):
        cta.set(met=time)
    everyone = [*here, *arrived]
    cta.known[here] = cta.known[everyone].max(axis=0)
    cta.known[np.ix_(here, here)] = time
    for warp, when in arrived.items():
        cta.known[here, warp] = when


def _reduced(grid: Grid, cta: Cta, here: list[int]) -> int:
    """What ``bar.red`` gives: the predicate over all threads."""
    values, lanes = cta.warps["barrier_value"][here], cta.warps["live"][here]
    operation = grid.lowered.blocks[int(cta.warps[here[0]]["barrier_block"])][0][1]
    if ".popc" in operation:
        return sum(int(value).bit_count() for value in values)
    return int((values == lanes).all() if ".and" in operation else values.any())
