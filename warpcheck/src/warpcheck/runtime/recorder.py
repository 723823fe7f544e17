"""Writes down what the warps of a launch's first block, or cluster, do, if that is asked for; see ``simt.events``."""

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

__all__ = ["EVENT", "MBARRIERS", "NO_BARRIER", "NO_SITE", "at_block", "find_mbarrier", "note", "note_at", "note_stop"]

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
def records(launch: LaunchRecord, cta: CtaRecord) -> int:
    """Whether events of this block are wanted."""
    return launch.events != 0 and cta.block_number < launch.cluster_size


@native
def note(
    launch: LaunchRecord, cta: CtaRecord, warp: int, kind: int, site: int, barrier: int, phase: int, nbytes: int
) -> None:
    """Add an event. ``site`` is that of an instruction, or ``at_block``, or NO_SITE.

    ``barrier`` is an address in shared memory, the number of a barrier of the block, or NO_BARRIER.
    """
    if records(launch, cta):
        if launch.event_count < EVENTS:
            event = EventRecord(launch.events + launch.event_count * EventRecord.size)
            event.kind = kind
            event.clock = launch.clock - launch.budget * launch.running
            event.block = cta.rank
            event.warp = warp
            event.site = site
            event.barrier = barrier
            event.phase = phase
            event.bytes = nbytes
        launch.event_count += 1


@native
def note_at(
    launch: LaunchRecord, cta: CtaRecord, warp: int, kind: int, site: int, owner: CtaRecord, barrier: int, nbytes: int
) -> None:
    """Add an event at a barrier, which may be an mbarrier of the block ``owner``."""
    if records(launch, cta):
        phase = 0
        if owner.mbarriers and barrier >= BARRIERS:
            place = find_mbarrier(owner, barrier)
            if place:
                record = MbarrierRecord(place)
                phase = record.phases
        note(launch, cta, warp, kind, site, barrier, phase, nbytes)


@native
def note_stop(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord) -> None:
    """A warp has stopped to run."""
    if records(launch, cta):
        kind, barrier, block = EventKind.WAIT, NO_BARRIER, NOWHERE
        for lane in range(LANES):
            block = min(block, load32(warp.address + PCS + 4 * lane))
        if warp.status == Status.BARRIER:
            barrier, block = warp.barrier, warp.barrier_block
        elif warp.status == Status.ARRIVED:
            kind, barrier, block = EventKind.ARRIVE, warp.barrier, warp.barrier_block
        elif warp.status == Status.SUSPENDED and warp.waits_at:
            barrier = warp.waits_at
        elif warp.status == Status.EXITED:
            kind = EventKind.EXIT
        elif warp.status != Status.SUSPENDED:
            kind = EventKind.PREEMPTED
        note_at(launch, cta, warp.index, kind, at_block(block), cta, barrier, 0)


@native
def at_block(block: int) -> int:
    """The site that stands for the first instruction of a basic block."""
    return NO_SITE + 1 + block


@native
def find_mbarrier(cta: CtaRecord, address: int) -> int:
    """The record of the barrier at an address; 0 without a barrier there."""
    for place in range(cta.mbarriers, cta.mbarriers + MBARRIERS * MbarrierRecord.size, MbarrierRecord.size):
        if load64(place) == address:
            return place
    return 0
