"""Check the bytes of a bulk or tensor copy's box: are they in bounds, written, and ordered.

A copy is checked twice. At its issue, as an access of the issuing thread: from then on the bytes that it writes are
PENDING. And when it is carried out, against the accesses in between: no thread knows that the copy is complete, so
nothing orders a write to its source, or any access to its destination.
"""

from __future__ import annotations

from warpcheck.errors import FAULT_KINDS, FaultKind
from warpcheck.layout import PENDING, WRITTEN, Access
from warpcheck.native import fill_bytes, load8, load64, native, noinline, store64
from warpcheck.runtime.access_history import ASYNCHRONOUS, ENTRY_BYTES, id_of, set_conflict, site_of, thread_of, time_of
from warpcheck.runtime.address_spaces import find_buffer
from warpcheck.runtime.boxes import PIECE, BulkRecord, Direction, row_address, shared_offset
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
from warpcheck.runtime.memory import record_fault
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
    address = owner.shared + offset
    state = owner.shared_state + offset
    history = owner.shared_history
    granule = launch.shared_granule
    if offset < 0 or offset + PIECE > launch.shared_bytes:
        return record_fault(launch, warp, OUT_OF_BOUNDS, copy.site, copy.lane, address)
    if kind == Access.STORE and is_pending(state, PIECE):
        find_pending_copy(launch, state, PIECE, history, offset >> granule)
        defer_fault(launch, cta, warp, RACE, copy.site, copy.lane, address, PIECE)
    if (
        kind != Access.STORE
        and unwritten(state, PIECE)
        and not joins_reduction(launch, state, PIECE, history, offset, granule, kind)
    ):
        defer_fault(launch, cta, warp, UNINITIALIZED, copy.site, copy.lane, address, PIECE)
    else:
        check_granules(
            launch,
            cta,
            warp,
            copy,
            owner.block_began,
            history,
            offset,
            PIECE,
            granule,
            kind,
            FENCES_SHARED,
            owner.shared,
        )
    if kind != Access.LOAD:
        fill_bytes(state, PENDING, PIECE)
    return 0


@native
def land_shared_side(
    launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, copy: BulkRecord, owner: CtaRecord
) -> None:
    """Check the shared side against the accesses since the issue, and mark its bytes as written."""
    writes = copy.direction != Direction.STORE
    for row in range(copy.rows):
        for column in range(0, copy.width, PIECE):
            offset = shared_offset(copy, row, column)
            check_interference(
                launch, cta, copy, owner.shared_history, offset, PIECE, launch.shared_granule, writes, owner.shared
            )
            if writes:
                fill_bytes(owner.shared_state + offset, WRITTEN, PIECE)


# The other end


@native
def check_global_side(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, copy: BulkRecord) -> int:
    """Check the box in global memory at the issue. Return whether it is a fault."""
    size = (copy.last - copy.first) * copy.element
    for row in range(copy.rows):
        address = row_address(copy, row)
        if address and check_span(launch, cta, warp, copy, address + copy.first * copy.element, size):
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
    size = (copy.last - copy.first) * copy.element
    for row in range(copy.rows):
        address = row_address(copy, row)
        if address:
            land_span_bytes(launch, cta, copy, address + copy.first * copy.element, size, marks_written)


@native
def check_span(
    launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, copy: BulkRecord, address: int, size: int
) -> int:
    """Check contiguous bytes of the global side, or of a peer copy's source, at the issue. Return whether it is a
    fault.
    """
    buffer = BufferRecord(find_buffer(launch, launch.buffers, address))
    offset = address - buffer.start
    kind = Access.LOAD
    if copy.direction == Direction.STORE:
        kind = Access.ATOMIC if copy.operation else Access.STORE
    start = buffer.start
    extent = buffer.bytes
    state = buffer.state
    history = buffer.history
    granule = buffer.granule
    floor = launch.launch_began
    if copy.direction == Direction.PEER:
        start = cta.shared
        extent = launch.shared_bytes
        floor = cta.block_began
        state = cta.shared_state
        history = cta.shared_history
        granule = launch.shared_granule
        offset = address - start
    if offset < 0 or offset + size > extent:
        return record_fault(launch, warp, OUT_OF_BOUNDS, copy.site, copy.lane, address)
    if copy.direction != Direction.PEER:
        buffer.reached = max(buffer.reached, offset + size)
    is_unreadable = kind != Access.STORE and unwritten(state + offset, size)
    if is_unreadable and not joins_reduction(launch, state + offset, size, history, offset, granule, kind):
        return record_fault(launch, warp, UNINITIALIZED, copy.site, copy.lane, address)
    if kind == Access.STORE and history and is_pending(state + offset, size):
        find_pending_copy(launch, state + offset, size, history, offset >> granule)
        defer_fault(launch, cta, warp, RACE, copy.site, copy.lane, address, size)
    if history:
        space = FENCES_SHARED if copy.direction == Direction.PEER else FENCES_GLOBAL
        check_granules(launch, cta, warp, copy, floor, history, offset, size, granule, kind, space, address - offset)
    if kind != Access.LOAD:
        fill_bytes(state + offset, PENDING, size)
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
    buffer = BufferRecord(find_buffer(launch, launch.buffers, address))
    history = buffer.history
    offset = address - buffer.start
    granule = buffer.granule
    if copy.direction == Direction.PEER:
        history = cta.shared_history
        offset = address - cta.shared
        granule = launch.shared_granule
    if marks_written:
        fill_bytes(buffer.state + offset, WRITTEN, size)
    elif copy.direction != Direction.STORE and history:
        check_interference(launch, cta, copy, history, offset, size, granule, 0, address - offset)


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
    floor: int,
    history: int,
    offset: int,
    size: int,
    granule: int,
    kind: int,
    space: int,
    start: int,
) -> None:
    """Record an access to these bytes; defer a fault if it races, or reads what was written after the last fence.

    A granule that is only partly covered is left out.
    """
    # Only granules that lie within the bytes: a partly covered one may hold a neighbor's access as well.
    for granule_index in range((offset - 1 >> granule) + 1, offset + size >> granule):
        entry = history + ENTRY_BYTES * granule_index
        address = start + (granule_index << granule)
        write_word = load64(entry)
        if check_race(launch, cta, floor, history, granule_index, warp.index, copy.lane, copy.site, kind, 0):
            defer_fault(launch, cta, warp, RACE, copy.site, copy.lane, address, 1 << granule)
        elif (
            kind != Access.STORE
            and time_of(write_word) >= floor
            and not is_visible_to_async_proxy(launch, cta, warp.index, write_word, space)
        ):
            set_conflict(launch, id_of(write_word), time_of(write_word))
            defer_fault(launch, cta, warp, NO_FENCE, copy.site, copy.lane, address, 1 << granule)
        if kind == Access.STORE and load64(entry) >> 32 == copy.time:
            store64(entry, load64(entry) | ASYNCHRONOUS)


@native
def check_interference(
    launch: LaunchRecord,
    cta: CtaRecord,
    copy: BulkRecord,
    history: int,
    offset: int,
    size: int,
    granule: int,
    writes: int,
    start: int,
) -> None:
    """Defer a race with a thread that has written these bytes since the copy was issued."""
    for granule_index in range((offset - 1 >> granule) + 1, offset + size >> granule):
        write_word = load64(history + ENTRY_BYTES * granule_index)
        if time_of(write_word) >= copy.time and not (
            writes and (id_of(write_word) == copy.access_id or copy.operation)
        ):
            set_conflict(launch, copy.access_id, copy.time)
            site = site_of(write_word)
            defer_fault_of_thread(
                launch, cta, RACE, site, thread_of(write_word), start + (granule_index << granule), 1 << granule
            )


@native
def sectors_of(copy: BulkRecord) -> int:
    """Return the sectors of global memory that a box touches, in pieces of 128 bytes from the start of each row.

    A sector that two pieces share is fetched for both, as on an H200; thin rows in one sector fetch it once.
    """
    size = (copy.last - copy.first) * copy.element
    sectors = 0
    last = -1
    for row in range(copy.rows):
        address = row_address(copy, row)
        if address:
            address += copy.first * copy.element
            # (size >= LINE or ...): a thin row in the sector of the row before it costs nothing more.
            for begin in range(address, address + size, LINE):
                end = min(begin + LINE, address + size) - 1 >> 5
                sectors += end - (begin >> 5) + (size >= LINE or begin >> 5 != last)
                last = end
    return sectors
