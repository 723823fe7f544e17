"""tcgen05.alloc, dealloc and relinquish_alloc_permit. PTX ISA manual, 9.7.16.7.

Each block has tensor memory of its own here: a block never waits for another one on the same multiprocessor.
"""

from __future__ import annotations

from warpcheck.layout import LANES
from warpcheck.native import fill_bytes, load64, native, store64
from warpcheck.runtime.access_history import access_id_of, set_conflict, time_of, warp_of
from warpcheck.runtime.deferred_faults import defer_fault_of_thread
from warpcheck.runtime.memory import OPERANDS
from warpcheck.runtime.records import CtaRecord, LaunchRecord, WarpRecord
from warpcheck.runtime.tensor_access import MISUSE, record_tensor_fault
from warpcheck.runtime.tensor_cells import (
    BY_CORE,
    CELLS_OF_COLUMN,
    COLUMNS,
    LANES_OF_CELL,
    LOAD_IN_FLIGHT,
    SLICE,
    STORE_IN_FLIGHT,
    CellRecord,
    cell_at,
    clock_offset,
    memory_address,
)
from warpcheck.runtime.tensor_rules import TensorRule

__all__ = [
    "SLICES",
    "begin_tensor_memory",
    "check_tensor_memory_freed",
    "tensor_alloc",
    "tensor_dealloc",
    "tensor_relinquish",
]

SLICES = COLUMNS // SLICE
LEAST_COLUMNS = 32


@native
def begin_tensor_memory(launch: LaunchRecord, cta: CtaRecord) -> None:
    """Reset the allocations of a block that begins, and find the other block of its pair.

    A pair has two blocks whose ranks in the cluster differ in the lowest bit (PTX ISA, 9.7.16.5.1).
    """
    cta.tensor_peer = 0
    if (cta.rank | 1) < launch.cluster_size:
        cta.tensor_peer = load64(cta.peers + 8 * (cta.rank ^ 1))
    cta.tensor_slices = 0
    cta.tensor_relinquished = 0
    cta.tensor_jobs_ended = cta.tensor_jobs_begun
    cta.tensor_pending = 0
    if cta.tensor_memory:
        fill_bytes(cta.tensor_allocations, 0, 8 * SLICES)


@native
def tensor_alloc(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, site: int, mask: int) -> int:
    """Allocate columns, whose number is in the first row, and leave their address there."""
    if mask == 0:
        return 0
    columns = load64(warp.address + OPERANDS)
    place = cta.tensor_memory
    launch.fault_value = columns
    if columns < LEAST_COLUMNS or columns > COLUMNS or columns & columns - 1:
        return record_tensor_fault(launch, warp, TensorRule.COLUMNS, site, 0, place)
    if cta.tensor_relinquished:
        return record_tensor_fault(launch, warp, TensorRule.RELINQUISHED, site, 0, place)
    count = columns // SLICE
    wanted = (1 << count) - 1
    for part in range(SLICES - count + 1):
        # First fit: a GPU may choose other columns, and no right kernel depends on which.
        if not cta.tensor_slices & wanted << part:
            cta.tensor_slices |= wanted << part
            store64(cta.tensor_allocations + 8 * part, columns)
            cta.tensor_alloc_site = site
            cta.tensor_alloc_thread = warp.index * LANES
            # What was in these columns before belongs to an earlier allocation, so it counts as never written.
            fill_bytes(cell_at(cta, part * SLICE, 0), 0, columns * CELLS_OF_COLUMN * CellRecord.size)
            for lane in range(LANES):
                store64(warp.address + OPERANDS + 8 * lane, part * SLICE)
            return 0
    return record_tensor_fault(launch, warp, TensorRule.EXHAUSTED, site, 0, place)


@native
def tensor_dealloc(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, site: int, mask: int) -> int:
    """Free the columns at the address in the first row, whose number is in the second."""
    if mask == 0:
        return 0
    address = load64(warp.address + OPERANDS)
    columns = load64(warp.address + OPERANDS + 8 * LANES)
    column = address & 0xFFFF
    place = memory_address(cta, column, 0)
    launch.fault_value = columns
    if address >= COLUMNS or column % SLICE or not load64(cta.tensor_allocations + 8 * (column // SLICE)):
        return record_tensor_fault(launch, warp, TensorRule.NOT_ALLOCATED, site, 0, place)
    if load64(cta.tensor_allocations + 8 * (column // SLICE)) != columns:
        return record_tensor_fault(launch, warp, TensorRule.WRONG_SIZE, site, 0, place)
    for number in range(column, column + columns):
        for part in range(CELLS_OF_COLUMN):
            cell = CellRecord(cell_at(cta, number, part * LANES_OF_CELL))
            if is_in_use(launch, cta, warp, cell):
                used = memory_address(cta, number, part * LANES_OF_CELL)
                return record_tensor_fault(launch, warp, TensorRule.FREED_IN_USE, site, 0, used)
    store64(cta.tensor_allocations + 8 * (column // SLICE), 0)
    cta.tensor_slices &= ~((1 << columns // SLICE) - 1 << column // SLICE)
    return 0


@native
def is_in_use(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, cell: CellRecord) -> int:
    """Return whether an access to a cell may not be over yet, or is not ordered before what the warp does now."""
    if cell.pending:
        return set_conflict(launch, cell.pending_id, launch.time)
    if cell.operands_pending:
        return set_conflict(launch, cell.operand_id, launch.time)
    if cell.flags & STORE_IN_FLIGHT or is_unordered_word(launch, cta, warp, cell, cell.write, cell.flags & BY_CORE):
        return set_conflict(launch, cell.write & 0xFFFFFFFF, time_of(cell.write))
    if cell.flags & LOAD_IN_FLIGHT or is_unordered_word(launch, cta, warp, cell, cell.read, 0):
        return set_conflict(launch, cell.read & 0xFFFFFFFF, time_of(cell.read))
    if is_unordered_word(launch, cta, warp, cell, cell.operand_read, 1):
        return set_conflict(launch, cell.operand_read & 0xFFFFFFFF, time_of(cell.operand_read))
    return 0


@native
def is_unordered_word(
    launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, cell: CellRecord, word: int, by_core: int
) -> int:
    """Return whether an access, of another warp or of the tensor core, is not ordered before what the warp does now."""
    # A warp's own accesses are in program order; those of the tensor core are asynchronous even for the warp that
    # issued them.
    if not word or (not by_core and warp_of(word) == warp.index):
        return 0
    block = cta.block_number
    if by_core:
        block = cell.core_block
    return time_of(word) >= load64(cta.vector_clock + clock_offset(launch, cta, warp, block, word))


@native
def tensor_relinquish(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, argument: int, mask: int) -> int:
    """Give up the right to allocate."""
    if mask:
        cta.tensor_relinquished = 1
    return 0


@native
def check_tensor_memory_freed(launch: LaunchRecord, cta: CtaRecord) -> None:
    """Defer a fault if a block that exits has not freed all of its tensor memory."""
    if cta.tensor_slices and not cta.deferred_address:
        launch.fault_detail = TensorRule.NOT_FREED
        launch.conflict_id = access_id_of(cta.tensor_alloc_site, cta.tensor_alloc_thread)
        defer_fault_of_thread(launch, cta, MISUSE, cta.tensor_alloc_site, cta.tensor_alloc_thread, cta.tensor_memory, 4)
