"""Copies to shared memory that a wgmma, or a tcgen05.mma, may still read.

A read of wgmma is over when a warp of its warpgroup has waited for it. The thread that issues a copy over its bytes
must be ordered behind that wait. An arrival before the wait does not order it, even if the wait comes first in this
run.
"""

from __future__ import annotations

from warpcheck.layout import LANES, READS
from warpcheck.native import load64, native
from warpcheck.runtime.access_history import access_id_of, set_conflict
from warpcheck.runtime.boxes import PIECE, BulkRecord, shared_offset
from warpcheck.runtime.deferred_faults import RACE, defer_fault
from warpcheck.runtime.happens_before import PLANE_BYTES, ROW_BYTES
from warpcheck.runtime.records import CtaRecord, LaunchRecord, ReadRecord, WarpRecord
from warpcheck.runtime.wgmma_operands import find_product_read, read_overlaps, read_slot

__all__ = ["check_wgmma_overwrite"]


@native
def check_wgmma_overwrite(
    launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, copy: BulkRecord, owner: CtaRecord
) -> None:
    """Defer a race if a copy writes bytes of a wgmma that the issuing warp does not know to be complete."""
    low, high = copy.offset & ~127, (copy.offset + copy.rows * copy.pitch + 127) & ~127
    if owner.tensor_pending:
        check_product_overwrite(launch, cta, warp, copy, owner)
    if owner.operand_reads == 0:
        return
    for warp_index in range(owner.warp_count):
        reader = WarpRecord(owner.warps + warp_index * owner.warp_stride)
        for read_number in range(max(0, reader.reads_begun - READS), reader.reads_begun):
            read = ReadRecord(read_slot(owner, reader, read_number))
            if (
                low < read.high
                and read.low < high
                and not is_read_waited_for(launch, cta, warp, owner, reader, read_number)
            ):
                set_conflict(launch, access_id_of(read.site, warp_index * LANES), launch.time)
                defer_overlap(launch, cta, warp, copy, owner, read)


@native
def check_product_overwrite(
    launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, copy: BulkRecord, owner: CtaRecord
) -> None:
    """Defer a race if a copy writes bytes that a tcgen05.mma has yet to read."""
    for row in range(copy.rows):
        for column in range(0, copy.width, PIECE):
            offset = shared_offset(copy, row, column)
            product = find_product_read(owner, offset, PIECE)
            if product:
                set_conflict(launch, product, launch.time)
                defer_fault(launch, cta, warp, RACE, copy.site, copy.lane, owner.shared + offset, PIECE)
                return


@native
def defer_overlap(
    launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, copy: BulkRecord, owner: CtaRecord, read: ReadRecord
) -> None:
    """Defer a race for the first piece of a copy that overlaps a read, if there is one."""
    for row in range(copy.rows):
        for column in range(0, copy.width, PIECE):
            offset = shared_offset(copy, row, column)
            if read_overlaps(read, offset, PIECE):
                defer_fault(launch, cta, warp, RACE, copy.site, copy.lane, owner.shared + offset, PIECE)
                return


@native
def is_read_waited_for(
    launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, owner: CtaRecord, reader: WarpRecord, read_number: int
) -> int:
    """Return whether a warp of the block ``cta`` is ordered behind a wait for this read by any warp of the
    warpgroup.
    """
    # The plane of this warp's clocks that is about the block whose memory is written; see clusters.
    plane = (owner.block_number - cta.block_number + launch.cluster_size) % launch.cluster_size
    for warp_index in range(reader.index & ~3, (reader.index | 3) + 1):
        peer_warp = WarpRecord(owner.warps + warp_index * owner.warp_stride)
        read = ReadRecord(read_slot(owner, peer_warp, read_number))
        known_until = load64(cta.vector_clock + PLANE_BYTES * plane + ROW_BYTES * warp.index + 8 * warp_index)
        if read.waited_at and (read.waited_at < known_until or (plane == 0 and warp_index == warp.index)):
            return 1
    return 0
