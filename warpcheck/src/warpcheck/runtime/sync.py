"""How warps come to know of each other's accesses: ``__syncwarp``, fences, asynchronous copies.

``races`` uses what is kept here; the barriers of a thread block are the scheduler's.
"""

from __future__ import annotations

from warpcheck.layout import COPIES, EVERYTHING, LANES, PENDING, WRITTEN
from warpcheck.native import load64, lowest_bit, native, store8, store64
from warpcheck.runtime.happens_before import WARPS, raise_to
from warpcheck.runtime.history import ENTRY, LOW, THREAD
from warpcheck.runtime.memory import ADDRESSES
from warpcheck.runtime.recorder import find_mbarrier
from warpcheck.runtime.records import CopyRecord, CtaRecord, LaunchRecord, MbarrierRecord, WarpRecord
from warpcheck.runtime.sources import COPIED, keep_sources, slot_of

__all__ = [
    "acquire",
    "acquire_polled",
    "commit_async",
    "copy_async",
    "end_tracked",
    "fence",
    "track_async",
    "wait_async",
    "warp_sync",
]


@native
def warp_sync(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, argument: int, mask: int) -> int:
    """The lanes of a warp wait for each other: it knows all that it did before."""
    launch.time += 1
    store64(cta.known + 8 * (WARPS * warp.index + warp.index), launch.time)
    return 0


@native
def fence(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, reach: int, mask: int) -> int:
    """What the warp did before, and what it has seen of others, it releases to those that find what it writes next.

    reach 1: what the thread block wrote before may be seen by blocks that use an atomic later; 3: and the other way
    round.
    """
    launch.time += 1
    if reach & 1:
        store64(launch.published + 8 * cta.block_number, launch.time)
    acquire(launch, cta, warp, reach >> 1, mask)
    own = WARPS * warp.index
    for other in range(cta.warp_count):
        store64(cta.released + 8 * (own + other), load64(cta.known + 8 * (own + other)))
    store64(cta.released + 8 * (own + warp.index), launch.time)
    return 0


@native
def acquire(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, wide: int, mask: int) -> int:
    """What the warp has seen happens before what it does now; with ``wide``, what other blocks have published, too."""
    if wide:
        cta.acquired = launch.time
    for other in range(cta.warp_count):
        place = 8 * (WARPS * warp.index + other)
        raise_to(cta.known + place, load64(cta.seen + place))
    return 0


@native
def acquire_polled(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, argument: int, mask: int) -> int:
    """A volatile load in a loop that waits for its value: Triton has no fence to put behind it, CUDA C++ has."""
    if launch.converges:
        cta.acquired = launch.time
    return 0


@native
def copy_async(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, argument: int, mask: int) -> int:
    """Remember what a cp.async has begun to write: it may not be read before a wait.

    argument: its bytes in a lane, and from bit 32 on the number of the instruction. The first row of operands has what
    each lane reads.
    """
    size = argument & (1 << 32) - 1
    if warp.copies_begun - warp.copies_ended == COPIES:
        finish(launch, cta, warp)
    copy = CopyRecord(slot_of(cta, warp, warp.copies_begun))
    warp.copies_begun += 1
    copy.group = warp.group
    copy.mask = mask
    copy.bytes = size
    copy.tracker = 0
    keep_sources(launch, cta, warp, copy, argument >> 32)
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
def track_async(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, argument: int, mask: int) -> int:
    """Have mbarriers track the copies begun so far: the addresses are theirs.

    Who waits for that phase knows of their writes, so these are dated now. Until somebody has, no thread may look.
    Copies of which not all lanes arrive, or at several barriers, count as done.
    """
    if mask == 0 or warp.copies_ended == warp.copies_begun:
        return 0
    tracker, uniform = load64(warp.address + ADDRESSES + 8 * lowest_bit(mask)), 1
    for lane in range(LANES):
        if mask >> lane & 1 and load64(warp.address + ADDRESSES + 8 * lane) != tracker:
            uniform = 0
    for number in range(warp.copies_ended, warp.copies_begun):
        copy = CopyRecord(slot_of(cta, warp, number))
        if copy.tracker == 0 and copy.mask & ~mask:
            uniform = 0
    last = CopyRecord(slot_of(cta, warp, warp.copies_begun - 1))
    place = find_mbarrier(cta, tracker)
    if last.tracker or not uniform or not place:
        return wait_async(launch, cta, warp, EVERYTHING, mask)
    for number in range(warp.copies_ended, warp.copies_begun):
        copy = CopyRecord(slot_of(cta, warp, number))
        if copy.tracker == 0:
            end(launch, cta, warp, copy, PENDING)
            record = MbarrierRecord(place)
            copy.tracker = tracker
            copy.phase = record.phases
    return 0


@native
def end_tracked(launch: LaunchRecord, cta: CtaRecord, barrier: MbarrierRecord) -> None:
    """A warp has waited for an mbarrier: what its last phase tracks is done, and what those warps began before."""
    for number in range(cta.warp_count):
        warp = WarpRecord(cta.warps + number * cta.warp_stride)
        done = warp.copies_ended
        for begun in range(warp.copies_ended, warp.copies_begun):
            copy = CopyRecord(slot_of(cta, warp, begun))
            if copy.tracker == barrier.place and copy.phase < barrier.phases:
                done = begun + 1
        while warp.copies_ended < done:
            finish(launch, cta, warp)


@native
def finish(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord) -> None:
    """The oldest copy is done: for other threads its writes happen now, or have since an mbarrier tracks it."""
    copy = CopyRecord(slot_of(cta, warp, warp.copies_ended))
    warp.copies_ended += 1
    cta.in_flight -= 1
    end(launch, cta, warp, copy, WRITTEN)


@native
def end(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, copy: CopyRecord, state: int) -> None:
    """Leave the bytes of a copy in a state, and date its writes."""
    for lane in range(LANES):
        if copy.mask >> lane & 1:
            address = load64(copy.address + COPIED + 8 * lane)
            set_state(cta, address, copy.bytes, state)
            if copy.tracker == 0:
                stamp(launch, cta, warp, lane, address, copy.bytes)


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
