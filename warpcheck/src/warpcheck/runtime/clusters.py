"""The thread blocks of a cluster: their vector clocks, and their barrier.

``vector_clock`` has a plane for each block of the cluster: plane p is about the block whose number is p further, modulo
the size of the cluster. A clock of a barrier has a row for each block, by its number in the cluster.
"""

from __future__ import annotations

from warpcheck.native import load64, native, store64
from warpcheck.runtime.happens_before import PLANE_BYTES, ROW_BYTES, raise_to
from warpcheck.runtime.records import CtaRecord, LaunchRecord, WarpRecord

__all__ = [
    "acquire_clock",
    "cluster_arrive",
    "cluster_wait",
    "join_clock",
    "open_cluster_barrier",
    "pass_on_clock",
    "release_fenced_to_clock",
    "release_to_clock",
]


@native
def release_to_clock(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, clock: int) -> None:
    """Release a warp's accesses: join its vector clock into a barrier's clock."""
    pass_on_clock(launch, cta, warp, clock)
    member = cta.block_number % launch.cluster_size
    store64(clock + ROW_BYTES * member + 8 * warp.index, launch.time)
    store64(cta.vc_released + (ROW_BYTES + 8) * warp.index, launch.time)


@native
def pass_on_clock(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, clock: int) -> None:
    """Join what a warp has acquired into a barrier's clock, without its own accesses."""
    size = launch.cluster_size
    member = cta.block_number % launch.cluster_size
    for plane in range(size):
        clock_row = clock + ROW_BYTES * ((member + plane) % size)
        warp_row = cta.vector_clock + PLANE_BYTES * plane + ROW_BYTES * warp.index
        for other_warp in range(cta.warp_count):
            raise_to(clock_row + 8 * other_warp, load64(warp_row + 8 * other_warp))


@native
def release_fenced_to_clock(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, clock: int) -> None:
    """Join the clock of a warp's last fence into a barrier's clock: a relaxed arrival releases nothing else."""
    clock_row = clock + ROW_BYTES * (cta.block_number % launch.cluster_size)
    for other_warp in range(cta.warp_count):
        raise_to(clock_row + 8 * other_warp, load64(cta.vc_released + ROW_BYTES * warp.index + 8 * other_warp))


@native
def acquire_clock(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, clock: int) -> None:
    """Order a warp behind everything in a barrier's clock."""
    join_clock(launch, cta, warp, clock, cta.vector_clock)


@native
def join_clock(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, clock: int, clocks: int) -> None:
    """Join a barrier's clock into a warp's row of a block's clocks."""
    size = launch.cluster_size
    member = cta.block_number % launch.cluster_size
    for plane in range(size):
        there = clock + ROW_BYTES * ((member + plane) % size)
        here = clocks + PLANE_BYTES * plane + ROW_BYTES * warp.index
        for other in range(cta.warp_count):
            raise_to(here + 8 * other, load64(there + 8 * other))


@native
def cluster_arrive(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, relaxed: int, mask: int) -> int:
    """Arrive at the barrier of the cluster."""
    warp.cluster_arrived |= mask
    first = CtaRecord(load64(cta.peers))
    if relaxed:
        release_fenced_to_clock(launch, cta, warp, first.barrier_clocks)
    else:
        launch.time += 1
        release_to_clock(launch, cta, warp, first.barrier_clocks)
    open_cluster_barrier(launch, cta)
    return 0


@native
def cluster_wait(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, argument: int, mask: int) -> int:
    """Block the lanes that have arrived until all threads of the cluster have."""
    warp.blocked_lanes = warp.cluster_arrived & mask
    warp.awaited_mbarrier = 0
    if mask & ~warp.blocked_lanes:
        first = CtaRecord(load64(cta.peers))
        acquire_clock(launch, cta, warp, first.barrier_clocks + ROW_BYTES * launch.cluster_size)
    return 0


@native
def open_cluster_barrier(launch: LaunchRecord, cta: CtaRecord) -> int:
    """Open the barrier of the cluster if all threads that have not exited have arrived. Return whether it opens."""
    # Blocks that have exited count as arrived; warps without live lanes do too.
    arrived = 0
    for rank in range(launch.cluster_size):
        peer = CtaRecord(load64(cta.peers + 8 * rank))
        for warp_index in range(peer.warp_count * (peer.block_began != 0)):
            warp = WarpRecord(peer.warps + warp_index * peer.warp_stride)
            if warp.live & ~warp.cluster_arrived:
                return 0
            arrived |= warp.cluster_arrived
    if not arrived:
        return 0
    # As with an mbarrier, the clock of the arrivals becomes that of the open barrier, in the first block's records.
    launch.time += 1
    first = CtaRecord(load64(cta.peers))
    for word in range(32 * launch.cluster_size):
        store64(
            first.barrier_clocks + ROW_BYTES * launch.cluster_size + 8 * word, load64(first.barrier_clocks + 8 * word)
        )
    for rank in range(launch.cluster_size):
        peer = CtaRecord(load64(cta.peers + 8 * rank))
        for warp_index in range(peer.warp_count):
            warp = WarpRecord(peer.warps + warp_index * peer.warp_stride)
            warp.cluster_arrived = 0
    return 1
