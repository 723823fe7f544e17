"""Record what the warps of a launch's first block, or cluster, do, if events are recorded; see ``events``."""

from __future__ import annotations

import numpy as np

from warpcheck.events import EVENTS, EventKind
from warpcheck.layout import LANES, NOWHERE, Status
from warpcheck.native import View, load32, load64, native
from warpcheck.runtime.records import (
    WARP,
    CtaRecord,
    LaunchRecord,
    MbarrierRecord,
    WarpRecord,
    field_offset,
)

__all__ = [
    "EVENT",
    "MBARRIERS",
    "NO_BARRIER",
    "NO_SITE",
    "block_site",
    "find_mbarrier",
    "record_barrier_event",
    "record_event",
    "record_stop",
]

PCS = field_offset(WARP, "pcs")
MBARRIERS = 256  # of a block at once
NO_SITE = -(1 << 40)  # of an event at no instruction; that of a basic block is its number further on, and one
NO_BARRIER = -1
BARRIERS = 16  # of a block: their numbers are no addresses


_FIELDS = ("kind", "clock", "block", "warp", "site", "barrier", "phase", "bytes")
EVENT = np.dtype([(name, "i8") for name in _FIELDS])


class EventRecord(View):
    """A view of EVENT: what a warp did."""

    record = EVENT


@native
def is_recorded(launch: LaunchRecord, cta: CtaRecord) -> int:
    """Return whether events of this block are recorded."""
    return launch.events != 0 and cta.block_number < launch.cluster_size


@native
def record_event(
    launch: LaunchRecord, cta: CtaRecord, warp: int, kind: int, site: int, barrier: int, phase: int, nbytes: int
) -> None:
    """Record an event.

    Args:
        site: The site of an instruction, the result of ``block_site``, or NO_SITE.
        barrier: The address of an mbarrier, the number of a barrier of the block, or NO_BARRIER.
    """
    if is_recorded(launch, cta):
        if launch.event_count < EVENTS:
            event = EventRecord(launch.events + launch.event_count * EventRecord.size)
            event.kind = kind
            # While a warp runs, launch.clock is that of the end of its slice.
            event.clock = launch.clock - launch.budget * launch.running
            event.block = cta.rank
            event.warp = warp
            event.site = site
            event.barrier = barrier
            event.phase = phase
            event.bytes = nbytes
        launch.event_count += 1


@native
def record_barrier_event(
    launch: LaunchRecord, cta: CtaRecord, warp: int, kind: int, site: int, owner: CtaRecord, barrier: int, nbytes: int
) -> None:
    """Record an event at a barrier, which may be an mbarrier of the block ``owner``."""
    if is_recorded(launch, cta):
        phase = 0
        if owner.mbarriers and barrier >= BARRIERS:
            record_address = find_mbarrier(owner, barrier)
            if record_address:
                record = MbarrierRecord(record_address)
                phase = record.completed_phases
        record_event(launch, cta, warp, kind, site, barrier, phase, nbytes)


@native
def record_stop(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord) -> None:
    """Record that a warp has stopped running, and why."""
    if is_recorded(launch, cta):
        kind = EventKind.WAIT
        barrier = NO_BARRIER
        block = NOWHERE
        for lane in range(LANES):
            block = min(block, load32(warp.address + PCS + 4 * lane))
        if warp.status == Status.BARRIER:
            barrier = warp.barrier
            block = warp.barrier_block
        elif warp.status == Status.ARRIVED:
            kind = EventKind.ARRIVE
            barrier = warp.barrier
            block = warp.barrier_block
        elif warp.status == Status.SUSPENDED and warp.awaited_mbarrier:
            barrier = warp.awaited_mbarrier
        elif warp.status == Status.EXITED:
            kind = EventKind.EXIT
        elif warp.status != Status.SUSPENDED:
            kind = EventKind.PREEMPTED
        record_barrier_event(launch, cta, warp.index, kind, block_site(block), cta, barrier, 0)


@native
def block_site(block: int) -> int:
    """Return the site that stands for the first instruction of a basic block."""
    return NO_SITE + 1 + block


@native
def find_mbarrier(cta: CtaRecord, address: int) -> int:
    """Return the address of the record of the mbarrier at an address; 0 if there is none."""
    # A kernel that initializes no mbarrier has no records.
    if not cta.mbarriers:
        return 0
    for record_address in range(cta.mbarriers, cta.mbarriers + MBARRIERS * MbarrierRecord.size, MbarrierRecord.size):
        if load64(record_address) == address:
            return record_address
    return 0
