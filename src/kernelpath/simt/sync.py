"""How warps come to know of each other's accesses: barriers, ``__syncwarp``, fences. ``races`` uses what is kept here."""

from __future__ import annotations

from numba import carray, njit, types

from kernelpath.simt.pointers import pointer

__all__ = ["fence", "warp_sync"]


@njit(cache=True)
def warp_sync(launch, warp, argument, mask):
    """The lanes of a warp wait for each other: it knows all that it did before."""
    l, w = carray(launch, 1)[0], carray(warp, 1)[0]
    l.time += 1
    carray(pointer(l.known, types.int64), (32, 32))[w.index, w.index] = l.time
    return 0


@njit(cache=True)
def fence(launch, warp, argument, mask):
    """What the thread block wrote before may be seen by blocks that use an atomic later."""
    l = carray(launch, 1)[0]
    l.time += 1
    carray(pointer(l.published, types.int64), l.block_number + 1)[l.block_number] = l.time
    return 0
