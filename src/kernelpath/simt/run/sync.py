"""How warps come to know of each other's accesses: ``__syncwarp``, fences, asynchronous copies.

``races`` uses what is kept here; the barriers of a thread block are the scheduler's.
"""

from __future__ import annotations

from kernelpath.simt.layout import COPIES, EVERYTHING, LANES, PENDING, WRITTEN
from kernelpath.simt.native import load64, native, store8, store64
from kernelpath.simt.run.happens_before import WARPS, raise_to
from kernelpath.simt.run.memory import ADDRESSES
from kernelpath.simt.run.races import ENTRY, LOW, THREAD
from kernelpath.simt.run.records import COPY, CopyRecord, CtaRecord, LaunchRecord, WarpRecord, field_offset

__all__ = ["acquire", "commit_async", "copy_async", "fence", "wait_async", "warp_sync"]

COPIED = field_offset(COPY, "addresses")


@native
def warp_sync(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, argument: int, mask: int) -> int:
    """The lanes of a warp wait for each other: it knows all that it did before."""
    launch.time += 1
    store64(cta.known + 8 * (WARPS * warp.index + warp.index), launch.time)
    return 0


@native
def fence(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, wide: int, mask: int) -> int:
    """What the warp did before, and what it has seen of others, it releases to those that find what it writes next.

    With ``wide``, what the thread block wrote before may be seen by blocks that use an atomic later.
    """
    launch.time += 1
    if wide:
        store64(launch.published + 8 * cta.block_number, launch.time)
    acquire(launch, cta, warp, 0, mask)
    own = WARPS * warp.index
    for other in range(cta.warp_count):
        store64(cta.released + 8 * (own + other), load64(cta.known + 8 * (own + other)))
    store64(cta.released + 8 * (own + warp.index), launch.time)
    return 0


@native
def acquire(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, argument: int, mask: int) -> int:
    """What the warp has seen happens before what it does now."""
    for other in range(cta.warp_count):
        place = 8 * (WARPS * warp.index + other)
        raise_to(cta.known + place, load64(cta.seen + place))
    return 0


@native
def copy_async(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, size: int, mask: int) -> int:
    """Remember what a cp.async has begun to write: it may not be read before a wait."""
    if warp.copies_begun - warp.copies_ended == COPIES:
        finish(launch, cta, warp)
    copy = CopyRecord(slot_of(cta, warp, warp.copies_begun))
    warp.copies_begun += 1
    copy.group = warp.group
    copy.mask = mask
    copy.bytes = size
    for lane in range(LANES):
        address = load64(warp.address + ADDRESSES + 8 * lane)
        store64(copy.address + COPIED + 8 * lane, address)
        if mask >> lane & 1:
            set_state(cta, address, size, PENDING)
    return 0


@native
def commit_async(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, argument: int, mask: int) -> int:
    """The copies begun so far are a group."""
    warp.group += 1
    return 0


@native
def wait_async(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, allowed: int, mask: int) -> int:
    """Wait until at most ``allowed`` groups are in flight, or until nothing is."""
    while warp.copies_ended < warp.copies_begun:
        copy = CopyRecord(slot_of(cta, warp, warp.copies_ended))
        if allowed != EVERYTHING and copy.group >= warp.group - allowed:
            return 0
        finish(launch, cta, warp)
    return 0


@native
def finish(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord) -> None:
    """The oldest copy is done: for other threads its writes happen now."""
    copy = CopyRecord(slot_of(cta, warp, warp.copies_ended))
    warp.copies_ended += 1
    for lane in range(LANES):
        if copy.mask >> lane & 1:
            address = load64(copy.address + COPIED + 8 * lane)
            set_state(cta, address, copy.bytes, WRITTEN)
            stamp(launch, cta, warp, lane, address, copy.bytes)


@native
def slot_of(cta: CtaRecord, warp: WarpRecord, number: int) -> int:
    """Where a warp remembers its copy of that number."""
    return cta.copies + (warp.index * COPIES + number % COPIES) * CopyRecord.size


@native
def set_state(cta: CtaRecord, address: int, size: int, state: int) -> None:
    """Set the state of bytes of shared memory."""
    for byte in range(size):
        store8(cta.shared_state + address - cta.shared + byte, state)


@native
def stamp(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, lane: int, address: int, size: int) -> None:
    """Date the write of a thread, unless another one has written since."""
    offset, thread = address - cta.shared, warp.index * LANES + lane
    for granule in range(offset >> launch.shared_granule, (offset + size - 1 >> launch.shared_granule) + 1):
        entry = cta.shared_history + ENTRY * granule
        write = load64(entry)
        if write & THREAD == thread:
            store64(entry, launch.time << 32 | write & LOW)
