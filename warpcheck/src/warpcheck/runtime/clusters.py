"""The thread blocks of a cluster: what they know of each other, and their barrier.

``known`` has a plane for each block of the cluster: plane p is about the block whose number is p further, around the
cluster. A clock has a row for each, by the number in the cluster.
"""

from __future__ import annotations

from warpcheck.native import load64, native, store64
from warpcheck.runtime.happens_before import PLANE, ROW, raise_to
from warpcheck.runtime.records import CtaRecord, LaunchRecord, WarpRecord

__all__ = ["cluster_arrive", "cluster_wait", "join", "meet_in_cluster", "publish", "publish_released"]


@native
def publish(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, clock: int) -> None:
    """What a warp did and knows is added to a clock, for those that join it: that much it has released."""
    size, member = launch.cluster_size, cta.block_number % launch.cluster_size
    for plane in range(size):
        there = clock + ROW * ((member + plane) % size)
        here = cta.known + PLANE * plane + ROW * warp.index
        for other in range(cta.warp_count):
            raise_to(there + 8 * other, load64(here + 8 * other))
    store64(clock + ROW * member + 8 * warp.index, launch.time)
    store64(cta.released + (ROW + 8) * warp.index, launch.time)


@native
def publish_released(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, clock: int) -> None:
    """What a warp's last fence has released is added to a clock: it arrives without releasing anything itself."""
    there = clock + ROW * (cta.block_number % launch.cluster_size)
    for other in range(cta.warp_count):
        raise_to(there + 8 * other, load64(cta.released + ROW * warp.index + 8 * other))


@native
def join(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, clock: int) -> None:
    """What a clock has happens before what the warp does now."""
    size, member = launch.cluster_size, cta.block_number % launch.cluster_size
    for plane in range(size):
        there = clock + ROW * ((member + plane) % size)
        here = cta.known + PLANE * plane + ROW * warp.index
        for other in range(cta.warp_count):
            raise_to(here + 8 * other, load64(there + 8 * other))


@native
def cluster_arrive(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, relaxed: int, mask: int) -> int:
    """Lanes arrive at the barrier of the cluster."""
    warp.cluster_arrived |= mask
    first = CtaRecord(load64(cta.peers))
    if relaxed:
        publish_released(launch, cta, warp, first.clocks)
    else:
        launch.time += 1
        publish(launch, cta, warp, first.clocks)
    meet_in_cluster(launch, cta)
    return 0


@native
def cluster_wait(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, argument: int, mask: int) -> int:
    """The lanes that have arrived wait until all of the cluster have."""
    warp.failing = warp.cluster_arrived & mask
    warp.waits_at = 0
    if mask & ~warp.failing:
        first = CtaRecord(load64(cta.peers))
        join(launch, cta, warp, first.clocks + ROW * launch.cluster_size)
    return 0


@native
def meet_in_cluster(launch: LaunchRecord, cta: CtaRecord) -> int:
    """Open the barrier of the cluster, if all of its threads that have not exited have arrived. Whether it opens."""
    arrived = 0
    for rank in range(launch.cluster_size):
        peer = CtaRecord(load64(cta.peers + 8 * rank))
        for number in range(peer.warp_count * (peer.block_began != 0)):
            warp = WarpRecord(peer.warps + number * peer.warp_stride)
            if warp.live & ~warp.cluster_arrived:
                return 0
            arrived |= warp.cluster_arrived
    if not arrived:
        return 0
    launch.time += 1
    first = CtaRecord(load64(cta.peers))
    for word in range(32 * launch.cluster_size):
        store64(first.clocks + ROW * launch.cluster_size + 8 * word, load64(first.clocks + 8 * word))
    for rank in range(launch.cluster_size):
        peer = CtaRecord(load64(cta.peers + 8 * rank))
        for number in range(peer.warp_count):
            warp = WarpRecord(peer.warps + number * peer.warp_stride)
            warp.cluster_arrived = 0
    return 1
