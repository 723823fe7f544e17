"""Whether a bulk or tensor copy may touch the bytes of its box: allowed, written, in order.

It is judged twice. When it is issued, as an access of the issuing thread: from then on what it writes is PENDING. When
it is carried out, by what others did to the same bytes in between: no thread knows that the copy is done, so nothing
orders a write to what it reads, or any access to what it writes.
"""

from __future__ import annotations

from kernelpath.simt.errors import FAULT_KINDS, FaultKind
from kernelpath.simt.layout import PENDING, WRITTEN, Access
from kernelpath.simt.native import fill_bytes, load8, load64, native, store64
from kernelpath.simt.run.boxes import PIECE, BulkRecord, Direction, near_of, row_of
from kernelpath.simt.run.memory import fault
from kernelpath.simt.run.races import ASYNCHRONOUS, ENTRY, LOW, SITE, THREAD, WAS_ATOMIC, accuse, check
from kernelpath.simt.run.reads import wgmma_reads
from kernelpath.simt.run.records import BufferRecord, CtaRecord, LaunchRecord, WarpRecord
from kernelpath.simt.run.spaces import find
from kernelpath.simt.run.suspects import RACE, UNINITIALIZED, blame_copy, suspect, suspect_thread

__all__ = ["begin_far", "begin_near", "land_far", "land_near", "sectors_of", "settle_far"]

OUT_OF_BOUNDS = FAULT_KINDS.index(FaultKind.OUT_OF_BOUNDS)
UNFENCED = FAULT_KINDS.index(FaultKind.UNFENCED)
BEGIN, LAND, SETTLE = 0, 1, 2


# Shared memory


@native
def begin_near(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, copy: BulkRecord, home: CtaRecord) -> int:
    """The end of a copy in the shared memory of the block ``home``, when it is issued. Whether it is at fault."""
    kind, fenced = Access.LOAD, last_fence(launch, cta)
    if copy.direction != Direction.STORE:
        kind = Access.ATOMIC if copy.operation else Access.STORE
    for row in range(copy.rows):
        for place in range(0, copy.width, PIECE):
            if begin_piece(launch, cta, warp, copy, home, near_of(copy, row, place), kind, fenced):
                return 1
    return 0


@native
def begin_piece(
    launch: LaunchRecord,
    cta: CtaRecord,
    warp: WarpRecord,
    copy: BulkRecord,
    home: CtaRecord,
    offset: int,
    kind: int,
    fenced: int,
) -> int:
    address, state, history = home.shared + offset, home.shared_state + offset, home.shared_history
    granule = launch.shared_granule
    if offset < 0 or offset + PIECE > launch.shared_bytes:
        return fault(launch, warp, OUT_OF_BOUNDS, copy.site, copy.lane, address)
    if kind != Access.STORE and unwritten(state, PIECE):
        blame_copy(launch, state, PIECE, history, offset >> granule)
        suspect(launch, cta, warp, UNINITIALIZED, copy.site, copy.lane, address, PIECE)
    elif judge(launch, cta, warp, copy, home.block_began, history, offset, PIECE, granule, kind):
        suspect(launch, cta, warp, RACE, copy.site, copy.lane, address, PIECE)
    elif kind == Access.LOAD:
        look_for_fence(launch, cta, warp, copy, home, offset, fenced)
    if kind != Access.LOAD and home.unwaited:
        read = wgmma_reads(home, address, PIECE)
        if read:
            accuse(launch, read, launch.time)
            suspect(launch, cta, warp, RACE, copy.site, copy.lane, address, PIECE)
    if kind == Access.STORE:
        fill_bytes(state, PENDING, PIECE)
    return 0


@native
def last_fence(launch: LaunchRecord, cta: CtaRecord) -> int:
    """The time of the last fence of the asynchronous proxy in a cluster."""
    fenced = 0
    for rank in range(launch.cluster_size):
        peer = CtaRecord(load64(cta.peers + 8 * rank))
        for number in range(peer.warp_count):
            warp = WarpRecord(peer.warps + number * peer.warp_stride)
            fenced = max(fenced, warp.fenced)
    return fenced


@native
def look_for_fence(
    launch: LaunchRecord,
    cta: CtaRecord,
    warp: WarpRecord,
    copy: BulkRecord,
    home: CtaRecord,
    offset: int,
    fenced: int,
) -> None:
    """Suspect a copy of bytes that a thread wrote after the last fence."""
    granule = launch.shared_granule
    for place in range((offset - 1 >> granule) + 1, offset + PIECE >> granule):
        write = load64(home.shared_history + ENTRY * place)
        if write >> 32 >= fenced and write >> 32 >= home.block_began and not is_asynchronous(write):
            accuse(launch, write & LOW, write >> 32)
            suspect(launch, cta, warp, UNFENCED, copy.site, copy.lane, home.shared + (place << granule), 1 << granule)


@native
def is_asynchronous(write: int) -> int:
    """Whether it was a bulk copy that wrote."""
    return write & (WAS_ATOMIC | ASYNCHRONOUS) == ASYNCHRONOUS


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
    return each_span(launch, cta, warp, copy, BEGIN)


@native
def land_far(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, copy: BulkRecord) -> None:
    """The same when the copy is carried out."""
    each_span(launch, cta, warp, copy, LAND)


@native
def settle_far(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, copy: BulkRecord) -> None:
    """What a copy has written to global memory may be read."""
    each_span(launch, cta, warp, copy, SETTLE)


@native
def each_span(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, copy: BulkRecord, phase: int) -> int:
    """Deal with the bytes of each row that lie inside."""
    size = (copy.last - copy.first) * copy.element
    for row in range(copy.rows):
        address = row_of(copy, row)
        if address:
            address += copy.first * copy.element
            if phase == BEGIN:
                if begin_span(launch, cta, warp, copy, address, size):
                    return 1
            else:
                land_span(launch, cta, warp, copy, address, size, phase)
    return 0


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
    if kind != Access.STORE and unwritten(state + offset, size):
        blame_copy(launch, state + offset, size, history, offset >> granule)
        return fault(launch, warp, UNINITIALIZED, copy.site, copy.lane, address)
    if history and judge(launch, cta, warp, copy, since, history, offset, size, granule, kind):
        suspect(launch, cta, warp, RACE, copy.site, copy.lane, address, size)
    if kind == Access.STORE:
        fill_bytes(state + offset, PENDING, size)
    return 0


@native
def land_span(
    launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, copy: BulkRecord, address: int, size: int, phase: int
) -> None:
    buffer = BufferRecord(find(launch, launch.buffers, address))
    history, offset, granule = buffer.history, address - buffer.start, buffer.granule
    if copy.direction == Direction.PEER:
        history, offset, granule = cta.shared_history, address - cta.shared, launch.shared_granule
    if phase == SETTLE:
        if not copy.operation:
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


@native
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
) -> int:
    """Whether an access to these bytes races; it is recorded. A granule that is shared with a neighbor is left out."""
    races = 0
    for place in range((offset - 1 >> granule) + 1, offset + size >> granule):
        entry = history + ENTRY * place
        races |= check(launch, cta, floor, entry, warp.index, copy.lane, copy.site, kind, 0)
        if kind == Access.STORE and load64(entry) >> 32 == copy.time:
            store64(entry, load64(entry) | ASYNCHRONOUS)
    return races


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
    """The sectors of 32 bytes of global memory that a box touches. One that a row shares with the next counts once."""
    size, sectors, last = (copy.last - copy.first) * copy.element, 0, -1
    for row in range(copy.rows):
        address = row_of(copy, row)
        if address:
            address += copy.first * copy.element
            sectors += (address + size - 1 >> 5) - (address >> 5) + (address >> 5 != last)
            last = address + size - 1 >> 5
    return sectors
