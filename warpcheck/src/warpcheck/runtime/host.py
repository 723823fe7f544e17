"""The host's side of a launch: it starts the scheduler, and settles what that leaves to it."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path

import numpy as np

from warpcheck.errors import FaultKind
from warpcheck.layout import LANES, SERVICES, Status
from warpcheck.runtime import schedule
from warpcheck.runtime.barriers import settle_barrier
from warpcheck.runtime.cta import Cta
from warpcheck.runtime.faults import Faults
from warpcheck.runtime.launch import Grid
from warpcheck.runtime.printf import c_string, formatted

__all__ = ["RunGrid", "execute"]

TURN = 1 << 24  # lane-instructions between two looks of the host: for the limit, and for Ctrl-C
SAMPLE_TURN = 1 << 16
VAIN, VAIN_EACH = 1 << 13, 1 << 6  # turns in a row in which blocks only poll, all told and of each: then none gets on
TOUCHED = 128 << 20  # bytes of fresh memory that a sample may take, checks included: at worst half a second
RunGrid = Callable[[int, int], int]  # the compiled ``schedule.run_grid``, of addresses


def execute(grid: Grid, run_grid: RunGrid, limit: int) -> bool:
    """Run every thread block. ``limit`` bounds the lane-instructions. Raises Fault and TimedOut.

    Return whether the launch was cut: a sample of blocks ends at the limit, or where it has touched too much memory.
    """
    granted, sample, in_vain = 0, grid.blocks is not None, 0
    touched = _resident() if sample else 0
    while granted < limit and (not sample or _resident() - touched < TOUCHED):
        turn = min(SAMPLE_TURN if sample else TURN, limit - granted)
        grid.set(left=turn)
        granted += turn
        while grid.get("left") >= 0:
            cta, stuck = grid.residents.cta, in_vain > len(grid.residents.busy)
            grid.set(expires=stuck)
            stopped = run_grid(grid.address, cta.address)
            in_vain = in_vain + (stopped == schedule.WAITS) if stopped in (schedule.WAITS, schedule.HOST) else 0
            match stopped:
                case schedule.DONE:
                    if not grid.residents.retire():
                        grid.memory.time = grid.get("time") + 1
                        return False
                case schedule.PASSES | schedule.WAITS:
                    if in_vain > max(VAIN, VAIN_EACH * len(grid.residents.busy)):
                        _raise_suspects(grid)
                        raise Faults(grid, cta).deadlock()
                    grid.residents.give_way(stuck)
                case schedule.HOST:
                    if grid.get("left") >= 0:
                        settle_barrier(grid, cta, Faults(grid, cta))
                        if cta.get("vain_polls") >= schedule.ROUNDS:
                            cta.set(vain_polls=0)
                            grid.residents.give_way(stuck)
                case _:
                    _deal_with(grid, cta, stopped, Faults(grid, cta))
    _raise_suspects(grid)
    if not sample:
        raise Faults(grid, grid.residents.cta).timed_out(limit)
    grid.memory.time = grid.get("time") + 1
    return True


def _raise_suspects(grid: Grid) -> None:
    for cta in grid.residents.busy:
        Faults(grid, cta).raise_suspect()


def _resident() -> int:
    """Bytes of memory that this process has touched and not given back."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def _deal_with(grid: Grid, cta: Cta, warp: int, faults: Faults) -> None:
    """Do what a warp has stopped for."""
    match Status(int(cta.warps[warp]["status"])):
        case Status.FAULT:
            raise faults.recorded()
        case Status.STUCK:
            raise faults.stuck(warp)
        case Status.HOST:
            _serve(grid, cta, warp, faults)
    cta.warps["status"][warp] = Status.READY


def _serve(grid: Grid, cta: Cta, warp: int, faults: Faults) -> None:
    """printf, assert, malloc and free, for each lane that calls them."""
    record = cta.warps[warp]
    service, mask = SERVICES[int(record["barrier"])], int(record["mask"])
    rows = np.ascontiguousarray(record["operands"][:8]).view(np.uint32).reshape(4, 2 * LANES).view(np.uint64)
    for lane in (lane for lane in range(LANES) if mask >> lane & 1):
        first, second, third = (int(rows[row, lane]) for row in range(3))
        if service == "vprintf":
            grid.printed.append(formatted(first, second))
            continue
        if service == "free":
            grid.free(first)
            continue
        if service == "malloc":
            rows[0, lane] = grid.allocate(first)
            record["operands"][:2] = rows[0].view(np.uint32).reshape(2, LANES)
            continue
        faults.raise_suspect()
        text = f"fails the assertion {c_string(first)!r} of {c_string(second)}, line {third & 0xFFFFFFFF}"
        raise faults.at_block(FaultKind.ASSERTION, text, int(record["barrier_block"]), warp, lane)
