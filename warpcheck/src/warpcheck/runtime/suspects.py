"""Faults that show in full at the next barrier of a block: races, and reads of shared memory that nothing wrote."""

from __future__ import annotations

from warpcheck.errors import FAULT_KINDS, FaultKind
from warpcheck.layout import LANES, PENDING
from warpcheck.native import apart, load8, load64, native
from warpcheck.runtime.happens_before import unordered
from warpcheck.runtime.history import ASYNCHRONOUS, ENTRY, LOW, SITE, WAS_ATOMIC, accuse
from warpcheck.runtime.records import CtaRecord, LaunchRecord, WarpRecord

__all__ = ["NO_FENCE", "RACE", "UNINITIALIZED", "blame_copy", "look_for_writer", "suspect", "suspect_thread"]

UNINITIALIZED = FAULT_KINDS.index(FaultKind.UNINITIALIZED)
RACE = FAULT_KINDS.index(FaultKind.RACE)
NO_FENCE = FAULT_KINDS.index(FaultKind.UNFENCED)


@apart
def suspect(
    launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, kind: int, number: int, lane: int, address: int, size: int
) -> None:
    """Remember the first fault that shows in full at the next barrier."""
    suspect_thread(launch, cta, kind, number, warp.index * LANES + lane, address, size)


@native
def suspect_thread(
    launch: LaunchRecord, cta: CtaRecord, kind: int, number: int, thread: int, address: int, size: int
) -> None:
    """The same of a thread of the block."""
    if not cta.suspect_address:
        cta.suspect_kind = kind
        cta.suspect_site = number
        cta.suspect_thread = thread
        cta.suspect_address = address
        cta.suspect_bytes = size
        cta.suspect_time = launch.time
        cta.suspect_other = launch.other
        cta.suspect_other_time = launch.other_time


@apart
def blame_copy(launch: LaunchRecord, state: int, size: int, history: int, place: int) -> int:
    """Whether an asynchronous copy has yet to write some of these bytes: it is kept as the other access."""
    launch.other = 0
    for byte in range(size):
        if history and load8(state + byte) == PENDING:
            write = load64(history + ENTRY * place)
            return accuse(launch, write & LOW | ASYNCHRONOUS, write >> 32)
    return 0


@native
def is_sum(launch: LaunchRecord) -> int:
    """Whether what ``blame_copy`` has found is a reduction: others may reduce into the same bytes meanwhile."""
    return launch.other & WAS_ATOMIC


@apart
def look_for_writer(
    launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, number: int, lane: int, address: int, size: int
) -> None:
    """A thread that writes what another one has read unwritten, with no order between them: that was a race."""
    thread, reader = warp.index * LANES + lane, cta.suspect_thread
    if cta.suspect_kind != UNINITIALIZED or not overlap(cta, address, size):
        return
    if unordered(launch, cta, cta.block_began, warp.index, reader, cta.suspect_time, thread):
        cta.suspect_kind = RACE
        cta.suspect_other = number + 1 << SITE | thread
        cta.suspect_other_time = launch.time


@native
def overlap(cta: CtaRecord, address: int, size: int) -> int:
    """Whether an access touches what was read unwritten."""
    start = cta.suspect_address
    return address < start + cta.suspect_bytes and start < address + size
