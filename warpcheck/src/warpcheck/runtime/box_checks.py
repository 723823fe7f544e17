"""Check the bytes of a bulk or tensor copy's box: are they in bounds, written, and ordered.

A copy is checked twice. At its issue, as an access of the issuing thread: from then on the bytes that it writes are
PENDING. And when it is carried out, against the accesses in between: no thread knows that the copy is complete, so
nothing orders a write to its source, or any access to its destination.
"""

from __future__ import annotations

from warpcheck.errors import FAULT_KINDS, FaultKind
from warpcheck.layout import PENDING, WRITTEN, Access, Space
from warpcheck.native import fill_bytes, load8, load64, native, noinline, store64
from warpcheck.runtime.access_history import (
    ASYNCHRONOUS,
    ENTRY_BYTES,
    Granule,
    id_of,
    set_conflict,
    site_of,
    thread_of,
    time_of,
)
from warpcheck.runtime.address_spaces import find_buffer
from warpcheck.runtime.boxes import PIECE, BulkRecord, Direction, row_address, shared_offset, stored_size
from warpcheck.runtime.byte_states import is_pending
from warpcheck.runtime.deferred_faults import (
    NO_FENCE,
    RACE,
    UNINITIALIZED,
    defer_fault,
    defer_fault_of_thread,
    find_pending_copy,
    is_reduction,
)
from warpcheck.runtime.memory import Segment, buffer_segment, record_fault, shared_segment
from warpcheck.runtime.proxies import FENCES_GLOBAL, FENCES_SHARED, is_visible_to_async_proxy
from warpcheck.runtime.races import check_race
from warpcheck.runtime.records import BufferRecord, CtaRecord, LaunchRecord, WarpRecord
from warpcheck.runtime.wgmma_overwrite import check_wgmma_overwrite

__all__ = [
    "check_global_side",
    "check_shared_side",
    "land_global_side",
    "land_shared_side",
    "mark_global_written",
    "sectors_of",
]

OUT_OF_BOUNDS = FAULT_KINDS.index(FaultKind.OUT_OF_BOUNDS)
LINE = 128


# Shared memory


@native
def check_shared_side(
    launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, copy: BulkRecord, owner: CtaRecord
) -> int:
    """Check the box in the shared memory of ``owner`` at the issue. Return whether it is a fault."""
    kind = Access.LOAD
    if copy.direction != Direction.STORE:
        kind = Access.ATOMIC if copy.operation else Access.STORE
        # The copy may land while a wgmma in flight still reads these bytes.
        check_wgmma_overwrite(launch, cta, warp, copy, owner)
    for row in range(copy.rows):
        for column in range(0, copy.width, PIECE):
            if check_piece(launch, cta, warp, copy, owner, shared_offset(copy, row, column), kind):
                return 1
    return 0


@native
def check_piece(
    launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, copy: BulkRecord, owner: CtaRecord, offset: int, kind: int
) -> int:
    """Check one piece of 16 bytes of the shared side at the issue. Return whether it is a fault."""
    segment = shared_segment(launch, owner, 0)
    address = segment.start + offset
    state = segment.state + offset
    if offset < 0 or offset + PIECE > launch.shared_bytes:
        return record_fault(launch, warp, OUT_OF_BOUNDS, copy.site, copy.lane, address)
    if kind == Access.STORE and is_pending(state, PIECE):
        find_pending_copy(launch, state, PIECE, segment.history, offset >> segment.granule)
        defer_fault(launch, cta, warp, RACE, copy.site, copy.lane, address, PIECE)
    if (
        kind != Access.STORE
        and unwritten(state, PIECE)
        and not joins_reduction(launch, state, PIECE, segment.history, offset, segment.granule, kind)
    ):
        defer_fault(launch, cta, warp, UNINITIALIZED, copy.site, copy.lane, address, PIECE)
    else:
        check_granules(launch, cta, warp, copy, segment, address, PIECE, kind)
    if kind != Access.LOAD:
        # Until the copy lands, no thread may read these bytes.
        fill_bytes(state, PENDING, PIECE)
    return 0


@native
def land_shared_side(
    launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, copy: BulkRecord, owner: CtaRecord
) -> None:
    """Check the shared side against the accesses since the issue, and mark its bytes as written."""
    writes = copy.direction != Direction.STORE
    segment = shared_segment(launch, owner, 0)
    for row in range(copy.rows):
        for column in range(0, copy.width, PIECE):
            offset = shared_offset(copy, row, column)
            # The bytes move when the copy lands, so it may conflict with any access between its issue and this moment.
            check_interference(launch, cta, copy, segment, segment.start + offset, PIECE, writes)
            if writes:
                fill_bytes(segment.state + offset, WRITTEN, PIECE)


# The other end


@native
def check_global_side(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, copy: BulkRecord) -> int:
    """Check the box in global memory at the issue. Return whether it is a fault."""
    size = stored_size(copy, (copy.last - copy.first) * copy.element)
    for row in range(copy.rows):
        address = row_address(copy, row)
        if address and check_span(
            launch, cta, warp, copy, address + stored_size(copy, copy.first * copy.element), size
        ):
            return 1
    return 0


@native
def land_global_side(launch: LaunchRecord, cta: CtaRecord, copy: BulkRecord) -> None:
    """Check the global side against the accesses since the issue."""
    process_rows(launch, cta, copy, 0)


@native
def mark_global_written(launch: LaunchRecord, cta: CtaRecord, copy: BulkRecord) -> None:
    """Mark what a copy has written to global memory as readable."""
    process_rows(launch, cta, copy, 1)


@native
def process_rows(launch: LaunchRecord, cta: CtaRecord, copy: BulkRecord, marks_written: int) -> None:
    """Process the bytes of each row that are inside the tensor."""
    size = stored_size(copy, (copy.last - copy.first) * copy.element)
    for row in range(copy.rows):
        address = row_address(copy, row)
        if address:
            land_span_bytes(
                launch, cta, copy, address + stored_size(copy, copy.first * copy.element), size, marks_written
            )


@native
def check_span(
    launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, copy: BulkRecord, address: int, size: int
) -> int:
    """Check contiguous bytes of the global side, or of a peer copy's source, at the issue. Return whether it is a
    fault.
    """
    buffer = BufferRecord(find_buffer(launch, launch.buffers, address))
    kind = Access.LOAD
    if copy.direction == Direction.STORE:
        kind = Access.ATOMIC if copy.operation else Access.STORE
    segment = buffer_segment(launch, Space.GLOBAL, buffer.address)
    if copy.direction == Direction.PEER:
        segment = shared_segment(launch, cta, 0)
    offset = address - segment.start
    state = segment.state + offset
    if offset < 0 or address + size > segment.end:
        return record_fault(launch, warp, OUT_OF_BOUNDS, copy.site, copy.lane, address)
    if copy.direction != Direction.PEER:
        buffer.reached = max(buffer.reached, offset + size)
    is_unreadable = kind != Access.STORE and unwritten(state, size)
    history = segment.history
    if is_unreadable and not joins_reduction(launch, state, size, history, offset, segment.granule, kind):
        return record_fault(launch, warp, UNINITIALIZED, copy.site, copy.lane, address)
    if kind == Access.STORE and history and is_pending(state, size):
        find_pending_copy(launch, state, size, history, offset >> segment.granule)
        defer_fault(launch, cta, warp, RACE, copy.site, copy.lane, address, size)
    if history:
        check_granules(launch, cta, warp, copy, segment, address, size, kind)
    if kind != Access.LOAD:
        fill_bytes(state, PENDING, size)
    return 0


@native
def joins_reduction(
    launch: LaunchRecord, state: int, size: int, history: int, offset: int, granule: int, kind: int
) -> int:
    """Return whether a reduction goes to bytes that other reductions in flight write; else set the copy that
    conflicts.
    """
    return (
        find_pending_copy(launch, state, size, history, offset >> granule)
        and kind == Access.ATOMIC
        and is_reduction(launch)
    )


@native
def land_span_bytes(
    launch: LaunchRecord, cta: CtaRecord, copy: BulkRecord, address: int, size: int, marks_written: int
) -> None:
    """Check contiguous bytes against the accesses since the issue, or mark them as written."""
    segment = buffer_segment(launch, Space.GLOBAL, find_buffer(launch, launch.buffers, address))
    if copy.direction == Direction.PEER:
        segment = shared_segment(launch, cta, 0)
    if marks_written:
        fill_bytes(segment.state + address - segment.start, WRITTEN, size)
    elif copy.direction != Direction.STORE and segment.history:
        check_interference(launch, cta, copy, segment, address, size, 0)


# Both


@native
def unwritten(state: int, size: int) -> int:
    """Return whether some of these bytes may not be read: UNWRITTEN and PENDING are odd."""
    for byte in range(size):
        if load8(state + byte) & 1:
            return 1
    return 0


@noinline
def check_granules(
    launch: LaunchRecord,
    cta: CtaRecord,
    warp: WarpRecord,
    copy: BulkRecord,
    segment: Segment,
    address: int,
    size: int,
    kind: int,
) -> None:
    """Record an access to these bytes; defer a fault if it races, or reads what was written after the last fence.

    A granule that is only partly covered is left out.
    """
    offset = address - segment.start
    fences = FENCES_SHARED if segment.space == Space.SHARED else FENCES_GLOBAL
    # Only granules that lie within the bytes: a partly covered one may hold a neighbor's access as well.
    for granule_index in range((offset - 1 >> segment.granule) + 1, offset + size >> segment.granule):
        entry = segment.history + ENTRY_BYTES * granule_index
        granule = Granule(segment.floor, segment.history, granule_index)
        granule_address = segment.start + (granule_index << segment.granule)
        write_word = load64(entry)
        if check_race(launch, cta, granule, warp.index, copy.lane, copy.site, kind, 0):
            defer_fault(launch, cta, warp, RACE, copy.site, copy.lane, granule_address, 1 << segment.granule)
        elif (
            kind != Access.STORE
            and time_of(write_word) >= segment.floor
            and not is_visible_to_async_proxy(launch, cta, warp.index, write_word, fences)
        ):
            set_conflict(launch, id_of(write_word), time_of(write_word))
            defer_fault(launch, cta, warp, NO_FENCE, copy.site, copy.lane, granule_address, 1 << segment.granule)
        # This write is by the async proxy, of which threads learn only through the mbarrier or a wait of the bulk
        # group.
        if kind == Access.STORE and load64(entry) >> 32 == copy.time:
            store64(entry, load64(entry) | ASYNCHRONOUS)


@native
def check_interference(
    launch: LaunchRecord,
    cta: CtaRecord,
    copy: BulkRecord,
    segment: Segment,
    address: int,
    size: int,
    writes: int,
) -> None:
    """Defer a race with a thread that has written these bytes since the copy was issued."""
    offset = address - segment.start
    for granule_index in range((offset - 1 >> segment.granule) + 1, offset + size >> segment.granule):
        write_word = load64(segment.history + ENTRY_BYTES * granule_index)
        if time_of(write_word) >= copy.time and not (
            writes and (id_of(write_word) == copy.access_id or copy.operation)
        ):
            set_conflict(launch, copy.access_id, copy.time)
            site = site_of(write_word)
            thread = thread_of(write_word)
            granule_address = segment.start + (granule_index << segment.granule)
            defer_fault_of_thread(launch, cta, RACE, site, thread, granule_address, 1 << segment.granule)


@native
def sectors_of(copy: BulkRecord) -> int:
    """Return the sectors of global memory that a box touches, in pieces of 128 bytes from the start of each row.

    A sector that two pieces share is fetched for both, as on an H200; thin rows in one sector fetch it once.
    """
    size = stored_size(copy, (copy.last - copy.first) * copy.element)
    sectors = 0
    last = -1
    for row in range(copy.rows):
        address = row_address(copy, row)
        if address:
            address += stored_size(copy, copy.first * copy.element)
            # (size >= LINE or ...): a thin row in the sector of the row before it costs nothing more.
            for begin in range(address, address + size, LINE):
                end = min(begin + LINE, address + size) - 1 >> 5
                sectors += end - (begin >> 5) + (size >= LINE or begin >> 5 != last)
                last = end
    return sectors
