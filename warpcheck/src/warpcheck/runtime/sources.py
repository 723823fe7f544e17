"""What a cp.async reads: from its issue until somebody has waited for it, nobody may store there.

The machine reads at once, a GPU at any time until the wait. So each copy keeps its source addresses, and a store to
global memory looks for them while any copy of its block is in flight. Bytes that other blocks write are judged by the
history, at the issue.
"""

from __future__ import annotations

from warpcheck.layout import COPIES, LANES
from warpcheck.native import apart, load64, lowest_bit, native, store64
from warpcheck.runtime.history import ASYNCHRONOUS, SITE, accuse
from warpcheck.runtime.records import COPY, WARP, CopyRecord, CtaRecord, LaunchRecord, WarpRecord, field_offset
from warpcheck.runtime.suspects import RACE, suspect

__all__ = ["COPIED", "judge_overwriting", "keep_sources", "slot_of"]

COPIED, SOURCES = (field_offset(COPY, name) for name in ("addresses", "sources"))
ADDRESSES, OPERANDS = (field_offset(WARP, name) for name in ("addresses", "operands"))


@native
def slot_of(cta: CtaRecord, warp: WarpRecord, number: int) -> int:
    """Where a warp remembers its copy of that number."""
    return cta.copies + (warp.index * COPIES + number % COPIES) * CopyRecord.size


@native
def keep_sources(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, copy: CopyRecord, number: int) -> None:
    """Keep what a copy, by the instruction of this number, reads: the first row of operands, 0 where it reads nothing.

    ``source_low`` and ``source_high`` enclose the sources of all copies since there was none in flight.
    """
    if cta.in_flight == 0:
        cta.source_low = 1 << 62
        cta.source_high = 0
    cta.in_flight += 1
    copy.site = number
    copy.issued = launch.time
    left = copy.mask
    while left:
        lane = lowest_bit(left)
        left &= left - 1
        source = load64(warp.address + OPERANDS + 8 * lane)
        store64(copy.address + SOURCES + 8 * lane, source)
        if source:
            cta.source_low = min(cta.source_low, source)
            cta.source_high = max(cta.source_high, source + copy.bytes)


@apart
def judge_overwriting(
    launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, number: int, mask: int, size: int
) -> None:
    """Suspect a store, or an atomic operation, to bytes that a cp.async of the block may have yet to read."""
    while mask:
        lane = lowest_bit(mask)
        mask &= mask - 1
        address = load64(warp.address + ADDRESSES + 8 * lane)
        if address < cta.source_high and address + size > cta.source_low:
            reader = reader_of(launch, cta, address, size)
            if reader:
                suspect(launch, cta, warp, RACE, number, lane, address, size)
                return


@native
def reader_of(launch: LaunchRecord, cta: CtaRecord, address: int, size: int) -> int:
    """Whether a copy in flight reads any of these bytes: it is kept as the other access."""
    for index in range(cta.warp_count):
        warp = WarpRecord(cta.warps + index * cta.warp_stride)
        for begun in range(warp.copies_ended, warp.copies_begun):
            copy = CopyRecord(slot_of(cta, warp, begun))
            for lane in range(LANES):
                source = load64(copy.address + SOURCES + 8 * lane)
                is_read = copy.mask >> lane & 1 and source and source < address + size
                if is_read and address < source + copy.bytes:
                    return accuse(launch, copy.site + 1 << SITE | ASYNCHRONOUS | index * LANES + lane, copy.issued)
    return 0
