"""The execution of tcgen05.cp, from shared memory to tensor memory, and of tcgen05.shift. PTX ISA manual, 9.7.16.9.

A copy takes rows of 16 or 32 bytes, which a shared memory descriptor describes, to four or eight columns. Which lanes
have a row depends on the shape, its ``spread``:

    EACH_LANE     128x256b, 128x128b         row r in lane r
    EACH_WARP     4x256b                     row r in lane 32 r, from the lane of the address on
    ALL_WARPS     32x128b.warpx4             row r in lanes r, r + 32, r + 64, and r + 96
    WARPS_02_13   64x128b.warpx2::02_13      row r in lanes r and r + 64
    WARPS_01_23   64x128b.warpx2::01_23      rows 0 to 31 in lanes r and r + 32, rows 32 to 63 in r + 32 and r + 64

CUTLASS has the same in copy_traits_sm100.hpp. With a source format, elements of 4 or 6 bits are widened to bytes.

A shift moves 32 bytes of each lane of a warp to the lane before it: lane r gets those of lane r + 1, and the last lane
keeps its own. The manual says "downwards across all the rows, except the last" and has no figure. Convolutions need
this direction: a product with the next place of the filter has the next pixel in each lane, and a copy of 4x256b, which
follows a shift in order, brings that of the last lane of each warp.
"""

from __future__ import annotations

from warpcheck.layout import LANES
from warpcheck.native import copy_bytes, load32, native, store32
from warpcheck.runtime.records import CtaRecord, ReadRecord
from warpcheck.runtime.tensor_cells import memory_address
from warpcheck.runtime.tensor_operands import widen_chunk
from warpcheck.runtime.tensor_records import TensorJobRecord
from warpcheck.runtime.wgmma_operands import CHUNK, chunk_at, layout_of

__all__ = ["EACH_WARP", "SHIFTED_COLUMNS", "SPREADS", "copy_to_tensor_memory", "shift_rows"]

SHIFTED_COLUMNS = 8  # 32 bytes

EACH_LANE, EACH_WARP, ALL_WARPS, WARPS_02_13, WARPS_01_23 = range(5)
# The rows, the columns, and the spread of a copy, by its shape.
SPREADS = {
    "128x256b": (128, 8, EACH_LANE),
    "128x128b": (128, 4, EACH_LANE),
    "4x256b": (4, 8, EACH_WARP),
    "32x128b.warpx4": (32, 4, ALL_WARPS),
    "64x128b.warpx2::02_13": (64, 4, WARPS_02_13),
    "64x128b.warpx2::01_23": (64, 4, WARPS_01_23),
}


@native
def replicas_of(spread: int) -> int:
    """Return how many lanes have a copy of each row."""
    if spread == ALL_WARPS:
        return 4
    return 2 if spread >= WARPS_02_13 else 1


@native
def lane_of_copy(spread: int, row: int, replica: int) -> int:
    """Return the lane of a replica of a row."""
    if spread == EACH_WARP:
        return 32 * row
    if spread == ALL_WARPS:
        return row + 32 * replica
    if spread == WARPS_02_13:
        return row + 64 * replica
    if spread == WARPS_01_23:
        return row + row // 32 * 32 + 32 * replica
    return row


@native
def copy_to_tensor_memory(owner: CtaRecord, job: TensorJobRecord, read: ReadRecord, chunk_memory: int) -> None:
    """Copy in one block; ``chunk_memory`` has room for the 16 bytes of a chunk."""
    layout = layout_of(read)
    for row in range(job.m):
        for half in range(read.halves):
            source = owner.shared + chunk_at(layout, read.halves * row + half)
            if job.width:
                widen_chunk(chunk_memory, source, job.width)
            else:
                copy_bytes(chunk_memory, source, CHUNK)
            for replica in range(replicas_of(job.spread)):
                lane = job.tensor_lane + lane_of_copy(job.spread, row, replica)
                for word in range(4):
                    target = memory_address(owner, job.column + 4 * half + word, lane)
                    store32(target, load32(chunk_memory + 4 * word))


@native
def shift_rows(owner: CtaRecord, job: TensorJobRecord) -> None:
    """Shift the lanes of a warp by one in one block."""
    for column in range(job.column, job.column + SHIFTED_COLUMNS):
        for lane in range(job.tensor_lane, job.tensor_lane + LANES - 1):
            target = memory_address(owner, column, lane)
            store32(target, load32(target + 4))
