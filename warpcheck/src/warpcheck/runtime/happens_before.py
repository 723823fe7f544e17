"""Decide whether one access happens before another: the vector clocks of warps.

``launch.time`` is a logical clock that counts synchronizations. Each warp has a vector clock, as in DJIT+ and
FastTrack: ``vector_clock[w][v]`` is the time up to which warp w is ordered behind warp v. Accesses of v that are
stamped earlier happen before everything that w does from now on. The diagonal entry ``[w][w]`` orders the lanes of a
warp among each other: it advances at ``__syncwarp``. A barrier joins the clocks of the warps that wait there.

Threads have no clocks of their own, and an access is stamped with the time of its launch, not with a count of its own
warp: both are exact as long as synchronization advances the time, since warps run one after another.

For the other blocks of its cluster a warp has one more plane of clocks each; see ``clusters`` and ``mbarriers``. Of the
other blocks of the grid it knows what they published by a fence; see ``is_unordered``.

A launch with the attribute for programmatic stream serialization may begin while the launches before it still run.
Their accesses, from ``overlap_began`` on, are unordered until griddepcontrol.wait; see ``is_unordered_with_launch``.
"""

from __future__ import annotations

from warpcheck.native import load64, native, noinline, store64
from warpcheck.runtime.records import CtaRecord, LaunchRecord, WarpRecord

WARPS = 32
ROW_BYTES = 8 * WARPS  # one warp's vector clock for one block
PLANE_BYTES = 8 * WARPS * WARPS  # the vector clocks of all warps for one block


@native
def raise_to(address: int, time: int) -> None:
    """Raise a time in memory to another one, if it is earlier."""
    if load64(address) < time:
        store64(address, time)


@native
def is_unordered(
    launch: LaunchRecord, cta: CtaRecord, floor: int, warp: int, other_thread: int, time: int, thread: int
) -> int:
    """Return whether an access of ``other_thread`` at ``time`` is concurrent with what ``thread`` does now.

    An access of another block is ordered if that block has issued a fence since, and this block has used an atomic
    operation after that fence. The "last block to finish" pattern and the barrier of a grid do so.
    """
    if time < floor:
        return False
    if time < launch.launch_began:
        return is_unordered_with_launch(launch, cta, warp, time, thread)
    if is_by_own_block(launch, cta, time):
        return other_thread != thread and time >= known_time(cta, warp, other_thread >> 5)
    # Another block. If it is of the same cluster, a plane of the vector clock may order its access.
    block = block_at_time(launch, time)
    if launch.cluster_size > 1:
        distance = block - cta.block_number + launch.cluster_size
        if block // launch.cluster_size == cta.block_number // launch.cluster_size:
            plane = distance % launch.cluster_size
            if load64(cta.vector_clock + PLANE_BYTES * plane + ROW_BYTES * warp + 8 * (other_thread >> 5)) > time:
                return False
    # Otherwise it takes a release and an acquire, both after the access: a fence there, an atomic operation here.
    return cta.acquired_at <= time or load64(launch.published_at + 8 * block) <= time


@noinline
def is_unordered_with_launch(launch: LaunchRecord, cta: CtaRecord, warp: int, time: int, thread: int) -> int:
    """Return whether an access of an earlier launch that may still run is concurrent with what ``thread`` does now.

    griddepcontrol.wait orders the thread that executes it (PTX ISA, "griddepcontrol"), and threads of the same cluster
    or grid that synchronize with that thread afterwards.
    """
    if time < launch.unawaited_end:
        return True
    own_warp = WarpRecord(cta.warps + warp * cta.warp_stride)
    if own_warp.grid_wait_lanes >> (thread & 31) & 1:
        return False
    for rank in range(launch.cluster_size):
        peer = CtaRecord(load64(cta.peers + 8 * rank))
        plane = (peer.block_number - cta.block_number + launch.cluster_size) % launch.cluster_size
        for other_warp in range(peer.warp_count):
            other = WarpRecord(peer.warps + other_warp * peer.warp_stride)
            known_until = load64(cta.vector_clock + PLANE_BYTES * plane + ROW_BYTES * warp + 8 * other_warp)
            if other.grid_waited_at and known_until > other.grid_waited_at:
                return False
    return launch.wait_published_at == 0 or cta.acquired_at < launch.wait_published_at


@native
def is_before_wait(cta: CtaRecord, warp: WarpRecord) -> int:
    """Return whether neither the warp has executed griddepcontrol.wait, nor its block in front of its last barrier."""
    if warp.grid_waited_at:
        return False
    return cta.grids_awaited_at == 0 or cta.last_barrier_time <= cta.grids_awaited_at


@native
def is_by_own_block(launch: LaunchRecord, cta: CtaRecord, time: int) -> int:
    """Return whether this block made the accesses of a time."""
    # Most accesses are of the present turn, or before the block began: only the rest needs the binary search.
    if time >= cta.turn_began or time < cta.block_began:
        return time >= cta.turn_began
    return block_at_time(launch, time) == cta.block_number


@noinline
def block_at_time(launch: LaunchRecord, time: int) -> int:
    """Return the number of the block whose turn it was at a time."""
    low = 0
    high = launch.turn_count
    while high - low > 1:
        middle = low + high >> 1
        if load64(launch.turns + 8 * middle) <= time:
            low = middle
        else:
            high = middle
    return load64(launch.turn_blocks + 8 * low)


@native
def known_time(cta: CtaRecord, warp: int, other_warp: int) -> int:
    """Return the time up to which a warp is ordered behind another one of its block."""
    return load64(cta.vector_clock + 8 * (WARPS * warp + other_warp))


@native
def any_released_since(cta: CtaRecord, warp_mask: int, time: int) -> int:
    """Return whether one of these warps has released its read of ``time``, which then must not be dated later."""
    warp_index = 0
    while warp_mask:
        diagonal = 8 * (WARPS * warp_index + warp_index)
        if warp_mask & 1 and (load64(cta.vc_released + diagonal) > time or load64(cta.vector_clock + diagonal) > time):
            return True
        warp_mask >>= 1
        warp_index += 1
    return False


@native
def knows_all(cta: CtaRecord, warp: int, warp_mask: int, time: int) -> int:
    """Return whether a warp is ordered behind what all of these warps did at ``time``."""
    return is_clock_past(cta.vector_clock + ROW_BYTES * warp, warp_mask, time)


@native
def is_clock_past(clock: int, warp_mask: int, time: int) -> int:
    """Return whether the vector clock at an address is past ``time`` for all of these warps."""
    other_warp = 0
    while warp_mask:
        if warp_mask & 1 and load64(clock + 8 * other_warp) <= time:
            return False
        warp_mask >>= 1
        other_warp += 1
    return True
