"""Detect an arrival of one lane at an mbarrier that stands for its whole warp.

CUTLASS's pipelines do this, and it is safe only if the lane knows of what the others did:

    smem[lane] = x;                          // all lanes write
    __syncwarp();                            // without this, the release below covers lane 0 alone
    if (lane == 0) mbarrier_arrive(&full);   // one lane arrives for the warp

The arrival releases what the lane itself has written, and what the other lanes had written when the warp last
synchronized, at a barrier or in ``__syncwarp``. Later writes of the other lanes race with a thread that waits for the
phase. Their reads count as done: the warp has issued them, and CUTLASS's pipelines free their stages like this.
"""

from __future__ import annotations

from warpcheck.native import native, noinline
from warpcheck.runtime.happens_before import is_by_own_block, known_time
from warpcheck.runtime.records import CtaRecord, LaunchRecord, MbarrierRecord, WarpRecord

__all__ = ["is_unreleased", "note_partial_arrival", "note_partial_wait"]


@native
def note_partial_arrival(
    launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, barrier: MbarrierRecord, mask: int
) -> None:
    """Record which lanes of a warp have arrived in this phase: the others may have written without releasing it."""
    # The first arrival of this warp in this phase: every live lane has yet to arrive.
    if barrier.partial_warp != warp.index or barrier.partial_phase != barrier.completed_phases:
        barrier.partial_warp = warp.index
        barrier.partial_phase = barrier.completed_phases
        barrier.unreleased_lanes = warp.live
        barrier.unreleased_since = known_time(cta, warp.index, warp.index)
    barrier.unreleased_lanes &= ~mask
    barrier.partial_time = launch.time


@native
def note_partial_wait(warp: WarpRecord, barrier: MbarrierRecord) -> None:
    """Record that a warp has waited for a phase of an mbarrier at which not all lanes of a warp arrived."""
    warp.partial_mbarrier = 0
    if barrier.unreleased_lanes:
        warp.partial_mbarrier = barrier.address


@noinline
def is_unreleased(launch: LaunchRecord, cta: CtaRecord, warp: int, thread: int, time: int) -> int:
    """Return whether a warp is ordered behind a write at ``time`` only by the arrival of another lane of the
    writer's warp.
    """
    reader = WarpRecord(cta.warps + warp * cta.warp_stride)
    if reader.partial_mbarrier == 0 or not is_by_own_block(launch, cta, time):
        return 0
    # The order comes from the arrival alone if the clock entry is exactly its time: any later synchronization of the
    # two warps would have raised it.
    barrier = MbarrierRecord(reader.partial_mbarrier)
    is_unreleased_lane = thread >> 5 == barrier.partial_warp and barrier.unreleased_lanes >> (thread & 31) & 1
    return (
        is_unreleased_lane
        and time >= barrier.unreleased_since
        and known_time(cta, warp, thread >> 5) == barrier.partial_time
    )
