"""How warps come to know of each other's accesses: barriers, ``__syncwarp``, fences. ``races`` uses what is kept here."""

from __future__ import annotations

from numba import njit

from kernelpath.simt.races import WARPS
from kernelpath.simt.memory import Launch, Warp
from kernelpath.simt.pointers import record, store

__all__ = ["fence", "warp_sync"]


@njit
def warp_sync(launch, warp, argument, mask):
    """The lanes of a warp wait for each other: it knows all that it did before."""
    l, w = record(launch, Launch), record(warp, Warp)
    l.time += 1
    store(l.known + 8 * (WARPS * w.index + w.index), l.time)
    return 0


@njit
def fence(launch, warp, argument, mask):
    """What the thread block wrote before may be seen by blocks that use an atomic later."""
    l = record(launch, Launch)
    l.time += 1
    store(l.published + 8 * l.block_number, l.time)
    return 0
