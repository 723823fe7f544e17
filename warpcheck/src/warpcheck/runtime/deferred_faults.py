"""Deferred faults: races, and reads of unwritten shared memory, which are reported at the next barrier of a block.

At the time of the access the cause may not be clear yet. A thread that reads ``smem[i]`` before it was written may lack
a barrier; or the writer may come later, and then it is a race between the two; or a thread that returned early will
never reach the barrier that all other threads wait at. So the first such fault of a block is kept in its record until a
barrier, or until the block ends.
"""

from __future__ import annotations

from warpcheck.errors import FAULT_KINDS, FaultKind
from warpcheck.layout import LANES, PENDING
from warpcheck.native import load8, load64, native, noinline
from warpcheck.runtime.access_history import (
    ASYNCHRONOUS,
    ENTRY_BYTES,
    WAS_ATOMIC,
    access_id_of,
    id_of,
    set_conflict,
    time_of,
)
from warpcheck.runtime.happens_before import is_unordered
from warpcheck.runtime.records import CtaRecord, LaunchRecord, WarpRecord

__all__ = [
    "NO_FENCE",
    "RACE",
    "UNINITIALIZED",
    "defer_fault",
    "defer_fault_of_thread",
    "find_pending_copy",
    "turn_into_race",
]

UNINITIALIZED = FAULT_KINDS.index(FaultKind.UNINITIALIZED)
RACE = FAULT_KINDS.index(FaultKind.RACE)
NO_FENCE = FAULT_KINDS.index(FaultKind.UNFENCED)


@noinline
def defer_fault(
    launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, kind: int, site: int, lane: int, address: int, size: int
) -> None:
    """Keep a fault of a lane for the next barrier, unless the block has one already."""
    defer_fault_of_thread(launch, cta, kind, site, warp.index * LANES + lane, address, size)


@native
def defer_fault_of_thread(
    launch: LaunchRecord, cta: CtaRecord, kind: int, site: int, thread: int, address: int, size: int
) -> None:
    """Keep a fault of a thread of the block for the next barrier, unless the block has one already."""
    if not cta.deferred_address:
        cta.deferred_kind = kind
        cta.deferred_site = site
        cta.deferred_thread = thread
        cta.deferred_address = address
        cta.deferred_bytes = size
        cta.deferred_time = launch.time
        cta.deferred_conflict_id = launch.conflict_id
        cta.deferred_conflict_time = launch.conflict_time


@noinline
def find_pending_copy(launch: LaunchRecord, state: int, size: int, history: int, granule_index: int) -> int:
    """Return whether an asynchronous copy has yet to write some of these bytes, and set it as the conflicting
    access.
    """
    # No conflict unless a byte is pending.
    launch.conflict_id = 0
    for byte in range(size):
        if history and load8(state + byte) == PENDING:
            write = load64(history + ENTRY_BYTES * granule_index)
            return set_conflict(launch, id_of(write) | ASYNCHRONOUS, time_of(write))
    return 0


@native
def is_reduction(launch: LaunchRecord) -> int:
    """Return whether the copy that ``find_pending_copy`` found is a reduction: others may reduce into the same bytes
    meanwhile.
    """
    return launch.conflict_id & WAS_ATOMIC


@noinline
def turn_into_race(
    launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, site: int, lane: int, address: int, size: int
) -> None:
    """Turn a deferred read of unwritten memory into a race if this store writes there without being ordered behind
    it.
    """
    thread = warp.index * LANES + lane
    reader = cta.deferred_thread
    if cta.deferred_kind != UNINITIALIZED or not touches_deferred_read(cta, address, size):
        return
    # Without order the read might have come after this write as well: a missing barrier, and not a missing write.
    if is_unordered(launch, cta, cta.block_began, warp.index, reader, cta.deferred_time, thread):
        cta.deferred_kind = RACE
        cta.deferred_conflict_id = access_id_of(site, thread)
        cta.deferred_conflict_time = launch.time


@native
def touches_deferred_read(cta: CtaRecord, address: int, size: int) -> int:
    """Return whether an access overlaps the bytes of the deferred fault."""
    start = cta.deferred_address
    return address < start + cta.deferred_bytes and start < address + size
