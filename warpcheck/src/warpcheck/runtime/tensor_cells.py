"""The history of tensor memory: who wrote and read each cell, what is in flight, and which accesses are ordered.

Tensor memory has 128 lanes and 512 columns of 32 bits (PTX ISA manual, 9.7.16.1). It is stored column after column:
the lanes of a column are neighbors. A cell of the history stands for 16 lanes of one column, the smallest piece that an
instruction accesses.

tcgen05.ld and st are in flight until their warp waits (wait::ld, wait::st); tcgen05.mma until the tensor core has
executed it, which a thread knows that has waited for the mbarrier of a commit. What happens before is decided by the
vector clocks of warps (``happens_before``): the product of a thread is dated when it is executed. Between warps there
also have to be tcgen05.fence::before_thread_sync and ::after_thread_sync (9.7.16.6.3). ``tensor_clock`` is the vector
clock of each warp at its last fence::after_thread_sync, and ``relaxed_clock`` that of its relaxed waits.
"""

from __future__ import annotations

import numpy as np

from warpcheck.native import View, load64, native
from warpcheck.runtime.access_history import set_conflict, thread_of, time_of, warp_of
from warpcheck.runtime.happens_before import PLANE_BYTES, ROW_BYTES
from warpcheck.runtime.records import CtaRecord, LaunchRecord, WarpRecord
from warpcheck.runtime.tensor_rules import TensorRule

__all__ = [
    "BY_CORE",
    "CELL",
    "CELLS",
    "CELLS_OF_COLUMN",
    "COLUMNS",
    "COLUMN_BYTES",
    "COPY_SHAPE",
    "CORE_READ",
    "CORE_UPDATE",
    "CORE_WRITE",
    "LANES_OF_CELL",
    "LOAD_IN_FLIGHT",
    "LOAD_UNFENCED",
    "MEMORY_BYTES",
    "ROW_COPY_SHAPE",
    "SHIFT_SHAPE",
    "SLICE",
    "STORE_IN_FLIGHT",
    "STORE_UNFENCED",
    "THREAD_READ",
    "THREAD_WRITE",
    "WRITTEN",
    "CellRecord",
    "cell_at",
    "check_cell",
    "clock_offset",
    "is_allocated",
    "memory_address",
]

COLUMNS = 512
LANES_OF_CELL = 16
CELLS_OF_COLUMN = 8
COLUMN_BYTES = 512  # 128 lanes of 4 bytes
MEMORY_BYTES = COLUMNS * COLUMN_BYTES
CELLS = COLUMNS * CELLS_OF_COLUMN
SLICE = 32  # columns that are allocated together
# The flags of a cell.
WRITTEN, STORE_IN_FLIGHT, STORE_UNFENCED, LOAD_IN_FLIGHT, LOAD_UNFENCED, BY_CORE = (1 << bit for bit in range(6))
# The kinds of accesses, those of threads (ld, st) first. A product updates its accumulator or overwrites it.
THREAD_READ, THREAD_WRITE, CORE_READ, CORE_WRITE, CORE_UPDATE = range(5)
COPY_SHAPE = 1 << 62  # what pending copies have in common
ROW_COPY_SHAPE = COPY_SHAPE | 1  # those of 4x256b, which follow a shift in order
SHIFT_SHAPE = 1 << 61

# write, read, operand_read: the time and access id of the last write, of the last tcgen05.ld, and of the last product
# that read A there. pending, operands_pending: how many products have yet to write and to read the cell; pending_id,
# operand_id: the access ids of the last of each. core_block: the number of the block that issued the last product that
# uses the cell: of a pair of blocks, one issues for both. shape: what the pending products have in common; see
# tensor_jobs. is_read: whether a product that reads the cell was issued behind the last pending write.
_PENDING = ("pending", "pending_id", "operands_pending", "operand_id", "is_read")
_CELL = ("write", "read", "operand_read", "flags", *_PENDING, "core_block", "shape")
CELL = np.dtype([(name, "i8") for name in _CELL])


class CellRecord(View):
    """A view of CELL."""

    record = CELL


@native
def cell_at(cta: CtaRecord, column: int, lane: int) -> int:
    """Return the address of the record of the cell with a lane of a column."""
    return cta.tensor_cells + (column * CELLS_OF_COLUMN + lane // LANES_OF_CELL) * CellRecord.size


@native
def memory_address(cta: CtaRecord, column: int, lane: int) -> int:
    """Return the address, in this process, of a lane of a column."""
    return cta.tensor_memory + column * COLUMN_BYTES + 4 * lane


@native
def is_allocated(cta: CtaRecord, column: int, count: int) -> int:
    """Return whether the block has allocated all of these columns."""
    if column < 0 or column + count > COLUMNS:
        return 0
    for part in range(column // SLICE, (column + count - 1) // SLICE + 1):
        if not cta.tensor_slices >> part & 1:
            return 0
    return 1


@native
def check_cell(
    launch: LaunchRecord,
    cta: CtaRecord,
    warp: WarpRecord,
    owner: CtaRecord,
    thread: int,
    cell: CellRecord,
    kind: int,
    shape: int,
) -> int:
    """Return the rule that an access to a cell breaks, and set the access that it conflicts with.

    Args:
        owner: The block whose tensor memory it is: the other one of the pair, for a product of two blocks.
        shape: That of a product, see ``tensor_jobs``, of a copy, or of a shift.
    """
    writes = kind == THREAD_WRITE or kind >= CORE_WRITE
    is_own_core = cell.core_block == cta.block_number
    if cell.pending:
        is_own = is_own_core and thread_of(cell.pending_id) == thread
        if is_own and kind >= CORE_READ and follows_in_order(cell, kind, shape):
            return TensorRule.NONE
        set_conflict(launch, cell.pending_id, launch.time)
        if kind >= CORE_READ and cell.shape == SHIFT_SHAPE:
            return TensorRule.SHIFT_NOT_PIPELINED
        if kind >= CORE_READ and cell.shape & COPY_SHAPE:
            return TensorRule.COPY_BEFORE_SHIFT if is_own else TensorRule.COPY_NOT_PIPELINED
        if kind >= CORE_READ:
            return TensorRule.NOT_PIPELINED
        return TensorRule.WRITTEN_BEFORE_COMMIT if writes else TensorRule.READ_BEFORE_COMMIT
    is_own_operand = is_own_core and thread_of(cell.operand_id) == thread
    if writes and cell.operands_pending and not (kind >= CORE_WRITE and is_own_operand):
        set_conflict(launch, cell.operand_id, launch.time)
        return TensorRule.OPERAND_OVERWRITTEN
    flags = cell.flags
    if not flags & WRITTEN and kind != THREAD_WRITE and kind != CORE_WRITE:
        launch.conflict_id = 0
        return TensorRule.UNWRITTEN
    rule = 0
    is_own_warp = owner.address == cta.address and warp_of(cell.write) == warp.index
    if flags & BY_CORE:
        # The tensor core executes the products, copies and shifts of one thread in order.
        is_pipelined = kind >= CORE_WRITE or (kind == CORE_READ and cell.shape & (COPY_SHAPE | SHIFT_SHAPE))
        if not is_pipelined or not is_own_core or thread_of(cell.write) != thread:
            rule = check_order(launch, cta, warp, cell.core_block, cell.write, 0, TensorRule.COMMIT_NOT_WAITED)
    elif flags & STORE_IN_FLIGHT and not (is_own_warp and kind == THREAD_WRITE):
        set_conflict(launch, cell.write & 0xFFFFFFFF, time_of(cell.write))
        return TensorRule.STORE_NOT_WAITED
    elif cell.write and not is_own_warp:
        unfenced = flags & STORE_UNFENCED
        rule = check_order(launch, cta, warp, owner.block_number, cell.write, unfenced, TensorRule.UNORDERED)
    if rule or not writes:
        return rule
    return check_reads(launch, cta, warp, owner, thread, cell, kind)


@native
def follows_in_order(cell: CellRecord, kind: int, shape: int) -> int:
    """Return whether the tensor core executes an access behind the pending one of the same thread.

    PTX ISA, 9.7.16.6.2: a product follows one with the same accumulator, shape and kind; a product follows copies and
    shifts; a copy of 4x256b follows a shift; and a shift follows a product. CUTLASS relies on copies that follow each
    other.
    """
    if cell.shape & (COPY_SHAPE | SHIFT_SHAPE) and shape == SHIFT_SHAPE:
        # A shift is behind another one, or behind a copy, if it is behind a product that reads what they have written.
        return cell.is_read and thread_of(cell.operand_id) == thread_of(cell.pending_id)
    if cell.shape & COPY_SHAPE:
        return 1
    if cell.shape == SHIFT_SHAPE:
        return not shape & COPY_SHAPE or shape == ROW_COPY_SHAPE
    return kind >= CORE_WRITE and (cell.shape == shape or shape == SHIFT_SHAPE)


@native
def check_reads(
    launch: LaunchRecord,
    cta: CtaRecord,
    warp: WarpRecord,
    owner: CtaRecord,
    thread: int,
    cell: CellRecord,
    kind: int,
) -> int:
    """Return the rule that a write to a cell breaks with respect to the reads since the last write."""
    if cell.read:
        if cell.flags & LOAD_IN_FLIGHT:
            set_conflict(launch, cell.read & 0xFFFFFFFF, time_of(cell.read))
            return TensorRule.LOAD_NOT_WAITED
        if owner.address != cta.address or warp_of(cell.read) != warp.index:
            unfenced = cell.flags & LOAD_UNFENCED
            rule = check_order(launch, cta, warp, owner.block_number, cell.read, unfenced, TensorRule.UNORDERED)
            if rule:
                return rule
    is_own = cell.core_block == cta.block_number and thread_of(cell.operand_read) == thread
    if cell.operand_read and not (kind >= CORE_WRITE and is_own):
        return check_order(launch, cta, warp, cell.core_block, cell.operand_read, 0, TensorRule.COMMIT_NOT_WAITED)
    return TensorRule.NONE


@native
def check_order(
    launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, block: int, word: int, unfenced: int, unordered_rule: int
) -> int:
    """Return the rule that is broken if an access of another warp, or of the tensor core, is not ordered before now.

    Args:
        block: The number of the block whose warp it was, or that issued the product.
    """
    time = time_of(word)
    set_conflict(launch, word & 0xFFFFFFFF, time)
    offset = clock_offset(launch, cta, warp, block, word)
    if time >= max(load64(cta.vector_clock + offset), load64(cta.relaxed_clock + offset)):
        return unordered_rule
    if not launch.requires_tensor_fences:
        return TensorRule.NONE
    if unfenced:
        return TensorRule.FENCE_BEFORE
    if time >= load64(cta.tensor_clock + offset):
        return TensorRule.FENCE_AFTER
    return TensorRule.NONE


@native
def clock_offset(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, block: int, word: int) -> int:
    """Return the offset, in the clocks of a block, of what a warp knows of the warp that made an access."""
    plane = (block - cta.block_number + launch.cluster_size) % launch.cluster_size
    return PLANE_BYTES * plane + ROW_BYTES * warp.index + 8 * warp_of(word)
