"""Whether a bulk or tensor copy may touch the bytes of its box: allowed, written, in order.

It is judged twice. When it is issued, as an access of the issuing thread: from then on what it writes is PENDING. When
it is carried out, by what others did to the same bytes in between: no thread knows that the copy is done, so nothing
orders a write to what it reads, or any access to what it writes.
"""

from __future__ import annotations

from warpcheck.errors import FAULT_KINDS, FaultKind
from warpcheck.layout import PENDING, WRITTEN, Access
from warpcheck.native import apart, fill_bytes, load8, load64, native, store64
from warpcheck.runtime.boxes import PIECE, BulkRecord, Direction, near_of, row_of
from warpcheck.runtime.history import ASYNCHRONOUS, ENTRY, LOW, SITE, THREAD, accuse
from warpcheck.runtime.memory import fault
from warpcheck.runtime.proxies import OF_GLOBAL, OF_SHARED, is_seen
from warpcheck.runtime.races import check
from warpcheck.runtime.records import BufferRecord, CtaRecord, LaunchRecord, WarpRecord
from warpcheck.runtime.refills import refill
from warpcheck.runtime.spaces import find
from warpcheck.runtime.states import is_pending
from warpcheck.runtime.suspects import NO_FENCE, RACE, UNINITIALIZED, blame_copy, is_sum, suspect, suspect_thread

__all__ = ["begin_far", "begin_near", "land_far", "land_near", "sectors_of", "settle_far"]

OUT_OF_BOUNDS = FAULT_KINDS.index(FaultKind.OUT_OF_BOUNDS)
LINE = 128


# Shared memory


@native
def begin_near(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, copy: BulkRecord, home: CtaRecord) -> int:
    """The end of a copy in the shared memory of the block ``home``, when it is issued. Whether it is at fault."""
    kind = Access.LOAD
    if copy.direction != Direction.STORE:
        kind = Access.ATOMIC if copy.operation else Access.STORE
        refill(launch, cta, warp, copy, home)
    for row in range(copy.rows):
        for place in range(0, copy.width, PIECE):
            if begin_piece(launch, cta, warp, copy, home, near_of(copy, row, place), kind):
                return 1
    return 0


@native
def begin_piece(
    launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, copy: BulkRecord, home: CtaRecord, offset: int, kind: int
) -> int:
    address, state, history = home.shared + offset, home.shared_state + offset, home.shared_history
    granule = launch.shared_granule
    if offset < 0 or offset + PIECE > launch.shared_bytes:
        return fault(launch, warp, OUT_OF_BOUNDS, copy.site, copy.lane, address)
    if kind == Access.STORE and is_pending(state, PIECE):
        blame_copy(launch, state, PIECE, history, offset >> granule)
        suspect(launch, cta, warp, RACE, copy.site, copy.lane, address, PIECE)
    if (
        kind != Access.STORE
        and unwritten(state, PIECE)
        and not adds(launch, state, PIECE, history, offset, granule, kind)
    ):
        suspect(launch, cta, warp, UNINITIALIZED, copy.site, copy.lane, address, PIECE)
    else:
        judge(launch, cta, warp, copy, home.block_began, history, offset, PIECE, granule, kind, OF_SHARED, home.shared)
    if kind != Access.LOAD:
        fill_bytes(state, PENDING, PIECE)
    return 0


@native
def land_near(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, copy: BulkRecord, home: CtaRecord) -> None:
    """The same when the copy is carried out."""
    writes = copy.direction != Direction.STORE
    for row in range(copy.rows):
        for place in range(0, copy.width, PIECE):
            offset = near_of(copy, row, place)
            interfere(launch, cta, copy, home.shared_history, offset, PIECE, launch.shared_granule, writes, home.shared)
            if writes:
                fill_bytes(home.shared_state + offset, WRITTEN, PIECE)


# The other end


@native
def begin_far(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, copy: BulkRecord) -> int:
    """The end of a copy in global memory, when it is issued. Whether it is at fault."""
    size = (copy.last - copy.first) * copy.element
    for row in range(copy.rows):
        address = row_of(copy, row)
        if address and begin_span(launch, cta, warp, copy, address + copy.first * copy.element, size):
            return 1
    return 0


@native
def land_far(launch: LaunchRecord, cta: CtaRecord, copy: BulkRecord) -> None:
    """The same when the copy is carried out."""
    each_span(launch, cta, copy, 0)


@native
def settle_far(launch: LaunchRecord, cta: CtaRecord, copy: BulkRecord) -> None:
    """What a copy has written to global memory may be read."""
    each_span(launch, cta, copy, 1)


@native
def each_span(launch: LaunchRecord, cta: CtaRecord, copy: BulkRecord, settles: int) -> None:
    """Deal with the bytes of each row that lie inside."""
    size = (copy.last - copy.first) * copy.element
    for row in range(copy.rows):
        address = row_of(copy, row)
        if address:
            land_span(launch, cta, copy, address + copy.first * copy.element, size, settles)


@native
def begin_span(
    launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, copy: BulkRecord, address: int, size: int
) -> int:
    buffer = BufferRecord(find(launch, launch.buffers, address))
    offset, kind = address - buffer.start, Access.LOAD
    if copy.direction == Direction.STORE:
        kind = Access.ATOMIC if copy.operation else Access.STORE
    start, extent, state, history, granule = buffer.start, buffer.bytes, buffer.state, buffer.history, buffer.granule
    since = launch.launch_began
    if copy.direction == Direction.PEER:
        start, extent, since = cta.shared, launch.shared_bytes, cta.block_began
        state, history, granule = cta.shared_state, cta.shared_history, launch.shared_granule
        offset = address - start
    if offset < 0 or offset + size > extent:
        return fault(launch, warp, OUT_OF_BOUNDS, copy.site, copy.lane, address)
    if copy.direction != Direction.PEER:
        buffer.reached = max(buffer.reached, offset + size)
    reads = kind != Access.STORE and unwritten(state + offset, size)
    if reads and not adds(launch, state + offset, size, history, offset, granule, kind):
        return fault(launch, warp, UNINITIALIZED, copy.site, copy.lane, address)
    if kind == Access.STORE and history and is_pending(state + offset, size):
        blame_copy(launch, state + offset, size, history, offset >> granule)
        suspect(launch, cta, warp, RACE, copy.site, copy.lane, address, size)
    if history:
        space = OF_SHARED if copy.direction == Direction.PEER else OF_GLOBAL
        judge(launch, cta, warp, copy, since, history, offset, size, granule, kind, space, address - offset)
    if kind != Access.LOAD:
        fill_bytes(state + offset, PENDING, size)
    return 0


@native
def adds(launch: LaunchRecord, state: int, size: int, history: int, offset: int, granule: int, kind: int) -> int:
    """Whether a reduction goes to what others in flight reduce into. Otherwise launch.other is the copy to blame."""
    return blame_copy(launch, state, size, history, offset >> granule) and kind == Access.ATOMIC and is_sum(launch)


@native
def land_span(launch: LaunchRecord, cta: CtaRecord, copy: BulkRecord, address: int, size: int, settles: int) -> None:
    buffer = BufferRecord(find(launch, launch.buffers, address))
    history, offset, granule = buffer.history, address - buffer.start, buffer.granule
    if copy.direction == Direction.PEER:
        history, offset, granule = cta.shared_history, address - cta.shared, launch.shared_granule
    if settles:
        fill_bytes(buffer.state + offset, WRITTEN, size)
    elif copy.direction != Direction.STORE and history:
        interfere(launch, cta, copy, history, offset, size, granule, 0, address - offset)


# Both


@native
def unwritten(state: int, size: int) -> int:
    """Whether some of these bytes may not be read: UNWRITTEN and PENDING are odd."""
    for byte in range(size):
        if load8(state + byte) & 1:
            return 1
    return 0


@apart
def judge(
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
    """Suspect an access to these bytes that races, or reads what was written behind the last fence; record it.

    A granule that is shared with a neighbor is left out.
    """
    for place in range((offset - 1 >> granule) + 1, offset + size >> granule):
        entry, address = history + ENTRY * place, start + (place << granule)
        write = load64(entry)
        if check(launch, cta, floor, history, place, warp.index, copy.lane, copy.site, kind, 0):
            suspect(launch, cta, warp, RACE, copy.site, copy.lane, address, 1 << granule)
        elif kind != Access.STORE and write >> 32 >= floor and not is_seen(launch, cta, warp.index, write, space):
            accuse(launch, write & LOW, write >> 32)
            suspect(launch, cta, warp, NO_FENCE, copy.site, copy.lane, address, 1 << granule)
        if kind == Access.STORE and load64(entry) >> 32 == copy.time:
            store64(entry, load64(entry) | ASYNCHRONOUS)


@native
def interfere(
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
    """Suspect who has written to these bytes since the copy was issued."""
    for place in range((offset - 1 >> granule) + 1, offset + size >> granule):
        write = load64(history + ENTRY * place)
        if write >> 32 >= copy.time and not (writes and (write & LOW == copy.trace or copy.operation)):
            accuse(launch, copy.trace, copy.time)
            number = (write & LOW) >> SITE
            suspect_thread(launch, cta, RACE, number - 1, write & THREAD, start + (place << granule), 1 << granule)


@native
def sectors_of(copy: BulkRecord) -> int:
    """The sectors of 32 bytes of global memory that a box touches, in pieces of 128 bytes from where each row begins.

    One that a piece shares with the next is fetched for both, as an H200 does; thin rows in one sector fetch it once.
    """
    size, sectors, last = (copy.last - copy.first) * copy.element, 0, -1
    for row in range(copy.rows):
        address = row_of(copy, row)
        if address:
            address += copy.first * copy.element
            for begin in range(address, address + size, LINE):
                end = min(begin + LINE, address + size) - 1 >> 5
                sectors += end - (begin >> 5) + (size >= LINE or begin >> 5 != last)
                last = end
    return sectors
