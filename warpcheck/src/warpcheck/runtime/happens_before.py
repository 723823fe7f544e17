"""What happens before what: the clocks that warps keep of each other.

Time counts synchronisations. ``known[w][v]`` is the time up to which warp w knows what warp v did: accesses of v
stamped earlier happen before whatever w does now. A barrier makes its warps know each other, ``__syncwarp`` makes a
warp know itself. Of another block of its cluster a warp knows as much as its barriers have told it; see ``clusters``
and ``mbarriers``.
"""

from __future__ import annotations

from warpcheck.native import load64, native, store64
from warpcheck.runtime.records import CtaRecord, LaunchRecord

WARPS = 32
ROW, PLANE = 8 * WARPS, 8 * WARPS * WARPS  # bytes of what one warp knows of a block, and of what all warps know


@native
def raise_to(place: int, time: int) -> None:
    """Make a time in memory no earlier than another."""
    if load64(place) < time:
        store64(place, time)


@native
def unordered(launch: LaunchRecord, cta: CtaRecord, floor: int, warp: int, other: int, time: int, thread: int) -> int:
    """Whether what thread ``other`` did at ``time`` may happen at the same time as what ``thread`` does now.

    A block has seen what another one did that issued a fence afterwards, if it has itself used an atomic since: so do
    "the last block to finish" and the barrier of a grid.
    """
    if time < floor:
        return False
    if is_own(launch, cta, time):
        return other != thread and time >= known(cta, warp, other >> 5)
    block = block_at(launch, time)
    if launch.cluster_size > 1:
        distance = block - cta.block_number + launch.cluster_size
        if block // launch.cluster_size == cta.block_number // launch.cluster_size:
            plane = distance % launch.cluster_size
            if load64(cta.known + PLANE * plane + ROW * warp + 8 * (other >> 5)) > time:
                return False
    return cta.acquired <= time or load64(launch.published + 8 * block) <= time


@native
def is_own(launch: LaunchRecord, cta: CtaRecord, time: int) -> int:
    """Whether it was this block that did what was done at ``time``."""
    if time >= cta.turn_began or time < cta.block_began:
        return time >= cta.turn_began
    return block_at(launch, time) == cta.block_number


@native
def block_at(launch: LaunchRecord, time: int) -> int:
    """The block whose turn it was."""
    low, high = 0, launch.turn_count
    while high - low > 1:
        middle = low + high >> 1
        if load64(launch.turns + 8 * middle) <= time:
            low = middle
        else:
            high = middle
    return load64(launch.turn_blocks + 8 * low)


@native
def known(cta: CtaRecord, warp: int, other: int) -> int:
    """The time up to which a warp knows what another one did."""
    return load64(cta.known + 8 * (WARPS * warp + other))


@native
def went_on(cta: CtaRecord, warps: int, time: int) -> int:
    """Whether one of ``warps`` has released its read of ``time``, which may not be dated later then."""
    other = 0
    while warps:
        own = 8 * (WARPS * other + other)
        if warps & 1 and (load64(cta.released + own) > time or load64(cta.known + own) > time):
            return True
        warps >>= 1
        other += 1
    return False


@native
def knows(cta: CtaRecord, warp: int, warps: int, time: int) -> int:
    """Whether a warp knows what all of ``warps`` did at ``time``."""
    other = 0
    while warps:
        if warps & 1 and known(cta, warp, other) <= time:
            return False
        warps >>= 1
        other += 1
    return True
