"""Copies to shared memory that a wgmma may still read.

A read of wgmma is over where a warp of its warpgroup has waited for it. Whoever refills its bytes has to know of that
wait: an arrival in front of it tells nothing of it, even if the wait comes before the copy in this run.
"""

from __future__ import annotations

from warpcheck.layout import LANES, READS
from warpcheck.native import load64, native
from warpcheck.runtime.boxes import PIECE, BulkRecord, near_of
from warpcheck.runtime.happens_before import PLANE, ROW
from warpcheck.runtime.history import SITE, accuse
from warpcheck.runtime.reads import read_slot, reads_any
from warpcheck.runtime.records import CtaRecord, LaunchRecord, ReadRecord, WarpRecord
from warpcheck.runtime.suspects import RACE, suspect

__all__ = ["refill"]


@native
def refill(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, copy: BulkRecord, home: CtaRecord) -> None:
    """Suspect a copy to bytes of a wgmma that the issuing warp does not know to be waited for."""
    low, high = copy.offset & ~127, (copy.offset + copy.rows * copy.pitch + 127) & ~127
    if home.reads == 0:
        return
    for number in range(home.warp_count):
        reader = WarpRecord(home.warps + number * home.warp_stride)
        for at in range(max(0, reader.reads_begun - READS), reader.reads_begun):
            read = ReadRecord(read_slot(home, reader, at))
            if low < read.high and read.low < high and not is_over(launch, cta, warp, home, reader, at):
                accuse(launch, read.site + 1 << SITE | number * LANES, launch.time)
                suspect_overlap(launch, cta, warp, copy, home, read)


@native
def suspect_overlap(
    launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, copy: BulkRecord, home: CtaRecord, read: ReadRecord
) -> None:
    """Suspect the first piece of a copy that a read takes, if there is one."""
    for row in range(copy.rows):
        for place in range(0, copy.width, PIECE):
            offset = near_of(copy, row, place)
            if reads_any(read, offset, PIECE):
                suspect(launch, cta, warp, RACE, copy.site, copy.lane, home.shared + offset, PIECE)
                return


@native
def is_over(
    launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, home: CtaRecord, reader: WarpRecord, at: int
) -> int:
    """Whether a warp of the block ``cta`` knows that some warp of a warpgroup has waited for a read of all of them."""
    plane = (home.block_number - cta.block_number + launch.cluster_size) % launch.cluster_size
    for number in range(reader.index & ~3, (reader.index | 3) + 1):
        other = WarpRecord(home.warps + number * home.warp_stride)
        read = ReadRecord(read_slot(home, other, at))
        known = load64(cta.known + PLANE * plane + ROW * warp.index + 8 * number)
        if read.until and (read.until < known or (plane == 0 and number == warp.index)):
            return 1
    return 0
