"""__syncwarp, fences, griddepcontrol, and cp.async: how warps come to be ordered behind each other's accesses.

``races`` uses the vector clocks that are kept here; the barriers of a thread block belong to the scheduler.
"""

from __future__ import annotations

from warpcheck.layout import COPIES, EVERYTHING, LANES, PENDING, WRITTEN
from warpcheck.native import load64, lowest_bit, native, store8, store64
from warpcheck.runtime.access_history import ENTRY_BYTES, LOW_WORD, thread_of
from warpcheck.runtime.cp_async_sources import DESTINATIONS, copy_slot, record_sources
from warpcheck.runtime.event_recorder import find_mbarrier
from warpcheck.runtime.happens_before import WARPS, raise_to
from warpcheck.runtime.memory import ADDRESSES
from warpcheck.runtime.records import CopyRecord, CtaRecord, LaunchRecord, MbarrierRecord, WarpRecord

__all__ = [
    "acquire",
    "acquire_polled",
    "commit_async",
    "copy_async",
    "end_tracked",
    "fence",
    "launch_dependents",
    "track_async",
    "wait_async",
    "wait_for_grids",
    "warp_sync",
]


@native
def warp_sync(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, argument: int, mask: int) -> int:
    """Execute __syncwarp: the warp is ordered behind everything that its lanes did before."""
    launch.time += 1
    # Only the warp's own component advances: __syncwarp orders its lanes, and tells it nothing of other warps.
    store64(cta.vector_clock + 8 * (WARPS * warp.index + warp.index), launch.time)
    return 0


@native
def fence(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, scope: int, mask: int) -> int:
    """Execute a fence: release what the warp is ordered behind to threads that find what it writes next.

    Args:
        scope: Bit 0: also publish the writes of the block to blocks that use an atomic operation later. Bit 1: also
            acquire what other blocks have published.
    """
    launch.time += 1
    if scope & 1:
        if load64(launch.published_at + 8 * cta.block_number) == 0:
            store64(launch.first_published_at + 8 * cta.block_number, launch.time)
        store64(launch.published_at + 8 * cta.block_number, launch.time)
        if cta.grids_awaited_at and launch.wait_published_at == 0:
            launch.wait_published_at = launch.time
    # Acquire first, so that the fence also releases what the warp has just observed: causality is transitive (PTX ISA,
    # "Causality order").
    acquire(launch, cta, warp, scope >> 1, mask)
    row = WARPS * warp.index
    for other_warp in range(cta.warp_count):
        store64(cta.vc_released + 8 * (row + other_warp), load64(cta.vector_clock + 8 * (row + other_warp)))
    # The fence also covers the warp's own writes, up to now.
    store64(cta.vc_released + 8 * (row + warp.index), launch.time)
    return 0


@native
def wait_for_grids(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, argument: int, mask: int) -> int:
    """Execute griddepcontrol.wait: the lanes are ordered behind the launches that this one overlaps.

    Launches run one after another here, so there is nothing to wait for.
    """
    if mask and cta.grids_awaited_at == 0:
        launch.grids_awaited = 1
        cta.grids_awaited_at = launch.time
    warp.grid_wait_lanes |= mask
    if mask and warp.grid_waited_at == 0:
        warp.grid_waited_at = launch.time
    return 0


@native
def launch_dependents(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, argument: int, mask: int) -> int:
    """Execute griddepcontrol.launch_dependents: the next launch may begin when all blocks have done so or have exited.

    Only the first time in a block counts.
    """
    if mask and not cta.dependents_launched:
        let_dependents_begin(launch, cta, launch.clock - launch.budget)
    return 0


@native
def let_dependents_begin(launch: LaunchRecord, cta: CtaRecord, clock: int) -> None:
    """Record that a block lets dependent grids begin, at the present ``launch.clock``."""
    cta.dependents_launched = 1
    launch.clock_before_trigger += clock - cta.clock_began
    # All blocks have to do so before a dependent grid begins. If one of them has waited before, the launches that it
    # waited for have ended by then.
    if cta.grids_awaited_at:
        launch.waits_before_trigger = 1


@native
def acquire(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, includes_other_blocks: int, mask: int) -> int:
    """Order the warp behind what it has observed; with ``includes_other_blocks``, also behind what other blocks have
    published.
    """
    if includes_other_blocks:
        cta.acquired_at = launch.time
    for other_warp in range(cta.warp_count):
        offset = 8 * (WARPS * warp.index + other_warp)
        raise_to(cta.vector_clock + offset, load64(cta.vc_observed + offset))
    return 0


@native
def acquire_polled(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, argument: int, mask: int) -> int:
    """Acquire after a volatile load in a polling loop: Triton cannot put a fence after it, CUDA C++ can."""
    if launch.converges:
        cta.acquired_at = launch.time
    return 0


@native
def copy_async(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, argument: int, mask: int) -> int:
    """Record what a cp.async will write: it may not be read before a wait.

    Args:
        argument: The bytes of a lane, and from bit 32 on the number of the site. The first row of operands has the
            sources.
    """
    size = argument & (1 << 32) - 1
    # The ring is full. Completing the oldest copy early can only hide a missing wait, never report a false one.
    if warp.copies_begun - warp.copies_ended == COPIES:
        finish_oldest_copy(launch, cta, warp)
    copy = CopyRecord(copy_slot(cta, warp, warp.copies_begun))
    warp.copies_begun += 1
    copy.group = warp.copy_group
    copy.mask = mask
    copy.bytes = size
    copy.tracker = 0
    record_sources(launch, cta, warp, copy, argument >> 32)
    for lane in range(LANES):
        address = load64(warp.address + ADDRESSES + 8 * lane)
        store64(copy.address + DESTINATIONS + 8 * lane, address)
        if mask >> lane & 1:
            set_shared_state(cta, address, size, PENDING)
    return 0


@native
def commit_async(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, argument: int, mask: int) -> int:
    """Make the copies issued so far a group."""
    warp.copy_group += 1
    return 0


@native
def wait_async(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, allowed: int, mask: int) -> int:
    """Wait until at most ``allowed`` groups are in flight, or until no copy is."""
    while warp.copies_ended < warp.copies_begun:
        copy = CopyRecord(copy_slot(cta, warp, warp.copies_ended))
        # Groups complete in the order of their commits (PTX ISA, cp.async.wait_group), so the oldest copy decides.
        if allowed != EVERYTHING and copy.group >= warp.copy_group - allowed:
            return 0
        finish_oldest_copy(launch, cta, warp)
    return 0


@native
def track_async(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, argument: int, mask: int) -> int:
    """Have mbarriers track the copies issued so far: their addresses are in the warp's record.

    A thread that waits for that phase is ordered behind their writes, so these are dated now. Until a thread has
    waited, none may read the bytes. If not all lanes of a copy arrive, or they arrive at several mbarriers, the copies
    are completed at once.
    """
    if mask == 0 or warp.copies_ended == warp.copies_begun:
        return 0
    tracker = load64(warp.address + ADDRESSES + 8 * lowest_bit(mask))
    is_uniform = 1
    for lane in range(LANES):
        if mask >> lane & 1 and load64(warp.address + ADDRESSES + 8 * lane) != tracker:
            is_uniform = 0
    for copy_number in range(warp.copies_ended, warp.copies_begun):
        copy = CopyRecord(copy_slot(cta, warp, copy_number))
        if copy.tracker == 0 and copy.mask & ~mask:
            is_uniform = 0
    # Only a uniform arrival of all lanes of all copies can be attributed to one phase of one barrier.
    last = CopyRecord(copy_slot(cta, warp, warp.copies_begun - 1))
    record_address = find_mbarrier(cta, tracker)
    if last.tracker or not is_uniform or not record_address:
        return wait_async(launch, cta, warp, EVERYTHING, mask)
    for copy_number in range(warp.copies_ended, warp.copies_begun):
        copy = CopyRecord(copy_slot(cta, warp, copy_number))
        if copy.tracker == 0:
            set_copy_state(launch, cta, warp, copy, PENDING)
            record = MbarrierRecord(record_address)
            copy.tracker = tracker
            copy.phase = record.completed_phases
    return 0


@native
def end_tracked(launch: LaunchRecord, cta: CtaRecord, barrier: MbarrierRecord) -> None:
    """Complete the copies that the last phase of an mbarrier tracks, and earlier ones of the same warps."""
    for warp_index in range(cta.warp_count):
        warp = WarpRecord(cta.warps + warp_index * cta.warp_stride)
        done = warp.copies_ended
        for copy_number in range(warp.copies_ended, warp.copies_begun):
            copy = CopyRecord(copy_slot(cta, warp, copy_number))
            if copy.tracker == barrier.object_address and copy.phase < barrier.completed_phases:
                done = copy_number + 1
        while warp.copies_ended < done:
            finish_oldest_copy(launch, cta, warp)


@native
def finish_oldest_copy(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord) -> None:
    """Complete the oldest copy of a warp: its writes are dated now, unless an mbarrier tracked it."""
    copy = CopyRecord(copy_slot(cta, warp, warp.copies_ended))
    warp.copies_ended += 1
    cta.copies_in_flight -= 1
    set_copy_state(launch, cta, warp, copy, WRITTEN)


@native
def set_copy_state(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, copy: CopyRecord, state: int) -> None:
    """Set the state of the bytes of a copy, and date its writes."""
    for lane in range(LANES):
        if copy.mask >> lane & 1:
            address = load64(copy.address + DESTINATIONS + 8 * lane)
            set_shared_state(cta, address, copy.bytes, state)
            if copy.tracker == 0:
                date_write(launch, cta, warp, lane, address, copy.bytes)


@native
def set_shared_state(cta: CtaRecord, address: int, size: int, state: int) -> None:
    """Set the state of bytes of shared memory."""
    for byte in range(size):
        store8(cta.shared_state + address - cta.shared + byte, state)


@native
def date_write(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, lane: int, address: int, size: int) -> None:
    """Date the write of a thread, unless another thread has written since."""
    offset = address - cta.shared
    thread = warp.index * LANES + lane
    for granule in range(offset >> launch.shared_granule, (offset + size - 1 >> launch.shared_granule) + 1):
        entry = cta.shared_history + ENTRY_BYTES * granule
        write = load64(entry)
        # If another thread has written since, its own race with this copy was found then.
        if thread_of(write) == thread:
            store64(entry, launch.time << 32 | write & LOW_WORD)
