"""Waiting for another thread by asking again and again: the warp's turn ends, so that the other one has its own."""

from __future__ import annotations

from warpcheck.layout import LANES
from warpcheck.native import apart, load64, lowest_bit, native, store64
from warpcheck.runtime.records import WARP, CtaRecord, LaunchRecord, WarpRecord, field_offset

__all__ = ["ask", "poll", "repeats"]

ASKED = field_offset(WARP, "asked")

PATIENCE = 32  # strong accesses to one address in a row, before the warp gives up its slice


@native
def poll(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, addresses: int, mask: int) -> None:
    """A strong access to global memory.

    It acquires what others have published, even if it is relaxed: programs in CUDA C++ leave out the fence behind it,
    as NVIDIA's guide does. Triton has no fences, and its operations say whether they acquire.
    """
    if not launch.converges:
        cta.acquired = launch.time
    ask(launch, cta, warp, addresses, mask)


@apart
def ask(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, addresses: int, mask: int) -> None:
    """A strong access. Some repetitions on, the warp's slice ends with the next round of its loop.

    Where that loop has a barrier of the block, the block gives way at one; see ``schedule``.
    """
    address = load64(addresses + 8 * lowest_bit(mask))
    if warp.polled != address:
        warp.polled = address
        warp.polls = 0
    warp.polls += 1
    if warp.polls >= PATIENCE and launch.budget >= 0:
        warp.polls = 1
        cta.vain_polls += 1
        spare = launch.budget + 1
        launch.spared += spare
        launch.clock -= spare
        launch.budget = -1


@apart
def repeats(warp: WarpRecord, number: int, addresses: int, mask: int) -> int:
    """Whether every lane of a strong load asks what it asked last, by the same instruction: how often is up to time."""
    again = warp.asking == number + 1
    for lane in range(LANES * (not again)):
        store64(warp.address + ASKED + 8 * lane, 0)
    while mask:
        lane = lowest_bit(mask)
        mask &= mask - 1
        address = load64(addresses + 8 * lane)
        again = again and load64(warp.address + ASKED + 8 * lane) == address
        store64(warp.address + ASKED + 8 * lane, address)
    warp.asking = number + 1
    return again
