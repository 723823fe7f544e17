"""The sources of cp.async: until a thread has waited for a copy, no thread may store there.

The machine reads them at the issue, a GPU at any time until the wait. So each copy keeps its source addresses, and a
store to global memory looks for them while a copy of its block is in flight. Stores of other blocks are checked by the
history, at the issue.
"""

from __future__ import annotations

from warpcheck.layout import COPIES, LANES
from warpcheck.native import load64, lowest_bit, native, noinline, store64
from warpcheck.runtime.access_history import ASYNCHRONOUS, access_id_of, set_conflict
from warpcheck.runtime.deferred_faults import RACE, defer_fault
from warpcheck.runtime.records import COPY, WARP, CopyRecord, CtaRecord, LaunchRecord, WarpRecord, field_offset

__all__ = ["DESTINATIONS", "check_source_overwrite", "copy_slot", "record_sources"]

DESTINATIONS, SOURCES = (field_offset(COPY, name) for name in ("addresses", "sources"))
ADDRESSES, OPERANDS = (field_offset(WARP, name) for name in ("addresses", "operands"))


@native
def copy_slot(cta: CtaRecord, warp: WarpRecord, number: int) -> int:
    """Return the address of a warp's record of its copy of that number."""
    return cta.copies + (warp.index * COPIES + number % COPIES) * CopyRecord.size


@native
def record_sources(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, copy: CopyRecord, site: int) -> None:
    """Record what a copy by the instruction ``site`` reads: the first row of operands, 0 where a lane reads nothing.

    ``source_low`` and ``source_high`` bound the sources of all copies since none was in flight.
    """
    if cta.copies_in_flight == 0:
        cta.source_low = 1 << 62
        cta.source_high = 0
    cta.copies_in_flight += 1
    copy.site = site
    copy.issued_at = launch.time
    remaining = copy.mask
    while remaining:
        lane = lowest_bit(remaining)
        remaining &= remaining - 1
        source = load64(warp.address + OPERANDS + 8 * lane)
        store64(copy.address + SOURCES + 8 * lane, source)
        # A lane that is predicated off, or copies no bytes, has no source.
        if source:
            cta.source_low = min(cta.source_low, source)
            cta.source_high = max(cta.source_high, source + copy.bytes)


@noinline
def check_source_overwrite(
    launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, site: int, mask: int, size: int
) -> None:
    """Defer a race if a store, or an atomic operation, writes bytes that a cp.async of the block may have yet to
    read.
    """
    while mask:
        lane = lowest_bit(mask)
        mask &= mask - 1
        address = load64(warp.address + ADDRESSES + 8 * lane)
        if address < cta.source_high and address + size > cta.source_low:
            reader = find_source_reader(launch, cta, address, size)
            if reader:
                defer_fault(launch, cta, warp, RACE, site, lane, address, size)
                return


@native
def find_source_reader(launch: LaunchRecord, cta: CtaRecord, address: int, size: int) -> int:
    """Return whether a copy in flight reads any of these bytes, and set it as the conflicting access."""
    for warp_index in range(cta.warp_count):
        warp = WarpRecord(cta.warps + warp_index * cta.warp_stride)
        for copy_number in range(warp.copies_ended, warp.copies_begun):
            copy = CopyRecord(copy_slot(cta, warp, copy_number))
            for lane in range(LANES):
                source = load64(copy.address + SOURCES + 8 * lane)
                is_read = copy.mask >> lane & 1 and source and source < address + size
                if is_read and address < source + copy.bytes:
                    return set_conflict(
                        launch, access_id_of(copy.site, warp_index * LANES + lane) | ASYNCHRONOUS, copy.issued_at
                    )
    return 0
