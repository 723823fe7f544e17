"""Waiting for another thread by asking again and again: the warp's turn ends, so that the other one has its own."""

from __future__ import annotations

from kernelpath.simt.native import load64, lowest_bit, native
from kernelpath.simt.run.records import CtaRecord, LaunchRecord, WarpRecord

__all__ = ["poll"]

PATIENCE = 32  # strong accesses to one address in a row, before the warp gives up its slice


@native
def poll(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, addresses: int, mask: int) -> int:
    """A strong access to global memory. Returns whether it repeats the last one: how often it does is up to time.

    Some repetitions on, the warp's slice ends with the next round of its loop.
    """
    cta.acquired = launch.time
    address = load64(addresses + 8 * lowest_bit(mask))
    if warp.polled != address:
        warp.polled = address
        warp.polls = 0
    warp.polls += 1
    again = warp.polls > 1
    if warp.polls >= PATIENCE and launch.budget >= 0:
        warp.polls = 1
        spare = launch.budget + 1
        launch.spared += spare
        launch.clock -= spare
        launch.budget = -1
    return again
