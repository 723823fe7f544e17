"""A lane that arrives at an mbarrier for its warp.

It releases what it has written itself, and what the others had written when the warp last waited for them: at a
barrier, or in ``__syncwarp``. What they have written since races with who waits for the phase. Their reads count as
done: the warp has issued them, and CUTLASS's pipelines free their stages like that.
"""

from __future__ import annotations

from warpcheck.native import native
from warpcheck.runtime.happens_before import is_own, known
from warpcheck.runtime.records import CtaRecord, LaunchRecord, MbarrierRecord, WarpRecord

__all__ = ["arrived_alone", "not_released", "note_arrival"]


@native
def note_arrival(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, barrier: MbarrierRecord, mask: int) -> None:
    """These lanes have arrived: those that have not in this phase may have written without releasing it."""
    if barrier.loose_warp != warp.index or barrier.loose_phase != barrier.phases:
        barrier.loose_warp = warp.index
        barrier.loose_phase = barrier.phases
        barrier.loose_lanes = warp.live
        barrier.loose_since = known(cta, warp.index, warp.index)
    barrier.loose_lanes &= ~mask
    barrier.loose_time = launch.time


@native
def arrived_alone(warp: WarpRecord, barrier: MbarrierRecord) -> None:
    """A warp has waited for a phase of an mbarrier."""
    warp.loose = 0
    if barrier.loose_lanes:
        warp.loose = barrier.address


@native
def not_released(launch: LaunchRecord, cta: CtaRecord, warp: int, thread: int, time: int) -> int:
    """Whether a warp knows of what a thread wrote at ``time`` by an arrival of another lane of its warp alone."""
    reader = WarpRecord(cta.warps + warp * cta.warp_stride)
    if reader.loose == 0 or not is_own(launch, cta, time):
        return 0
    barrier = MbarrierRecord(reader.loose)
    is_loose = thread >> 5 == barrier.loose_warp and barrier.loose_lanes >> (thread & 31) & 1
    return is_loose and time >= barrier.loose_since and known(cta, warp, thread >> 5) == barrier.loose_time
