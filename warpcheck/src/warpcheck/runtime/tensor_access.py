"""tcgen05.ld, st, wait and fence: how threads access tensor memory. PTX ISA manual, 9.7.16.8 and 9.7.16.11.

A load or store is in flight until its warp waits for it; the warp remembers which cells it covers, and the wait dates
its accesses. ``isa.tensor`` moves the data when the instruction is issued.
"""

from __future__ import annotations

import numpy as np

from warpcheck.errors import FAULT_KINDS, FaultKind
from warpcheck.layout import LANES
from warpcheck.native import View, copy_bytes, load64, native
from warpcheck.runtime.access_history import access_id_of, warp_of
from warpcheck.runtime.happens_before import PLANE_BYTES, ROW_BYTES, raise_to
from warpcheck.runtime.memory import OPERANDS, record_fault
from warpcheck.runtime.records import CtaRecord, LaunchRecord, WarpRecord
from warpcheck.runtime.tensor_cells import (
    BY_CORE,
    LANES_OF_CELL,
    LOAD_IN_FLIGHT,
    LOAD_UNFENCED,
    STORE_IN_FLIGHT,
    STORE_UNFENCED,
    THREAD_READ,
    THREAD_WRITE,
    WRITTEN,
    CellRecord,
    cell_at,
    check_cell,
    is_allocated,
    memory_address,
)
from warpcheck.runtime.tensor_rules import TensorRule

__all__ = ["ACCESSES", "TENSOR_ACCESS", "record_tensor_fault", "tensor_access", "tensor_fence", "tensor_wait"]

OUT_OF_BOUNDS, UNINITIALIZED, RACE, NO_FENCE, DESCRIPTOR, MISUSE = (
    FAULT_KINDS.index(kind)
    for kind in (
        FaultKind.OUT_OF_BOUNDS,
        FaultKind.UNINITIALIZED,
        FaultKind.RACE,
        FaultKind.UNFENCED,
        FaultKind.DESCRIPTOR,
        FaultKind.TENSOR_MEMORY,
    )
)
ACCESSES = 64  # loads and stores of a warp that are remembered; one more counts as complete and fenced

# One tcgen05.ld or st that a warp has not waited for, or not fenced since: its columns, and its lanes.
TENSOR_ACCESS = np.dtype([(name, "i8") for name in ("column", "columns", "lane", "lanes", "stores", "waited")])


class TensorAccessRecord(View):
    """A view of TENSOR_ACCESS."""

    record = TENSOR_ACCESS


@native
def tensor_access(
    launch: LaunchRecord,
    cta: CtaRecord,
    warp: WarpRecord,
    site: int,
    mask: int,
    stores: int,
    columns: int,
    lanes: int,
    split: int,
) -> int:
    """Check and record a load or store of ``columns`` columns in ``lanes`` lanes, at the address in the first row.

    Args:
        split: Whether the shape is 16x32bx2: the second row has the distance to as many columns again.
    """
    if mask == 0:
        return 0
    address = load64(warp.address + OPERANDS)
    for lane in range(LANES):
        # The PTX ISA leaves it undefined if the lanes of a warp give different addresses (9.7.16.8).
        if load64(warp.address + OPERANDS + 8 * lane) != address:
            return record_tensor_fault(launch, warp, TensorRule.DIVERGENT_ADDRESS, site, lane, cta.tensor_memory)
    column = address & 0xFFFF
    first_lane = address >> 16
    place = memory_address(cta, column, first_lane & 127)
    if first_lane & lanes - 1 or first_lane > 127:
        return record_tensor_fault(launch, warp, TensorRule.LANE_START, site, 0, place)
    # A warp accesses the quarter of the lanes that its number modulo 4 selects (PTX ISA, 9.7.16.8.1).
    if first_lane // LANES != warp.index & 3:
        return record_tensor_fault(launch, warp, TensorRule.LANE_QUARTER, site, 0, place)
    if access_columns(launch, cta, warp, site, column, columns, first_lane, lanes, stores):
        return 1
    if split:
        second = column + (load64(warp.address + OPERANDS + 8 * LANES) & 0xFFFF)
        return access_columns(launch, cta, warp, site, second, columns, first_lane, lanes, stores)
    return 0


@native
def access_columns(
    launch: LaunchRecord,
    cta: CtaRecord,
    warp: WarpRecord,
    site: int,
    column: int,
    columns: int,
    lane: int,
    lanes: int,
    stores: int,
) -> int:
    """Check and record an access to contiguous columns. Return whether it is a fault."""
    if not is_allocated(cta, column, columns):
        return record_tensor_fault(launch, warp, TensorRule.OUTSIDE, site, 0, memory_address(cta, column, lane))
    thread = warp.index * LANES
    kind = THREAD_WRITE if stores else THREAD_READ
    word = launch.time << 32 | access_id_of(site, thread)
    for number in range(columns):
        for part in range(lanes // LANES_OF_CELL):
            cell_lane = lane + part * LANES_OF_CELL
            cell = CellRecord(cell_at(cta, column + number, cell_lane))
            rule = check_cell(launch, cta, warp, cta, thread, cell, kind, 0)
            if rule:
                return record_tensor_fault(launch, warp, rule, site, 0, memory_address(cta, column + number, cell_lane))
            mark_access(launch, cell, word, stores)
    if stores or launch.requires_tensor_fences:
        remember_access(launch, cta, warp, column, columns, lane, lanes, stores)
    return 0


@native
def mark_access(launch: LaunchRecord, cell: CellRecord, word: int, stores: int) -> None:
    """Record an access of a thread in a cell, which is in flight."""
    if stores:
        cell.write = word
        # A thread that is ordered behind this store is also ordered behind the reads before it, so only the store is
        # kept.
        cell.read = 0
        cell.operand_read = 0
        unfenced = STORE_UNFENCED if launch.requires_tensor_fences else 0
        cell.flags = WRITTEN | STORE_IN_FLIGHT | unfenced
        return
    cell.read = word
    # Compilers rely on the registers of a load: what uses them waits (PTX ISA, 9.7.16.6.4.5). Their kernels have no
    # wait::ld of their own.
    if launch.requires_tensor_fences:
        cell.flags |= LOAD_IN_FLIGHT | LOAD_UNFENCED


@native
def remember_access(
    launch: LaunchRecord,
    cta: CtaRecord,
    warp: WarpRecord,
    column: int,
    columns: int,
    lane: int,
    lanes: int,
    stores: int,
) -> None:
    """Remember an access for the wait and the fence that come later."""
    if warp.tensor_accesses == ACCESSES:
        # The list is full. An access that counts as complete too early can only hide a missing wait.
        finish_access(launch, cta, warp, access_slot(cta, warp, 0), 1)
        settle_access(launch, cta, warp, access_slot(cta, warp, 0))
        drop_access(cta, warp, 0)
    access = TensorAccessRecord(access_slot(cta, warp, warp.tensor_accesses))
    warp.tensor_accesses += 1
    access.column = column
    access.columns = columns
    access.lane = lane
    access.lanes = lanes
    access.stores = stores
    access.waited = 0


@native
def access_slot(cta: CtaRecord, warp: WarpRecord, number: int) -> int:
    """Return the address of a warp's record of its access of that number."""
    return cta.tensor_accesses + (warp.index * ACCESSES + number) * TensorAccessRecord.size


@native
def drop_access(cta: CtaRecord, warp: WarpRecord, number: int) -> None:
    """Forget an access; later ones move up."""
    warp.tensor_accesses -= 1
    for following in range(number, warp.tensor_accesses):
        copy_bytes(access_slot(cta, warp, following), access_slot(cta, warp, following + 1), TensorAccessRecord.size)


@native
def tensor_wait(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, stores: int, mask: int) -> int:
    """Wait until the loads, or the stores, of the warp are complete."""
    if mask == 0:
        return 0
    launch.time += 1
    number = 0
    while number < warp.tensor_accesses:
        access = TensorAccessRecord(access_slot(cta, warp, number))
        if access.stores == stores and not access.waited:
            finish_access(launch, cta, warp, access.address, 0)
        # Where fences are required, an access is remembered beyond its wait, until a fence follows.
        if access.waited and not launch.requires_tensor_fences:
            drop_access(cta, warp, number)
        else:
            number += 1
    return 0


@native
def finish_access(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, slot: int, keeps_date: int) -> None:
    """Complete a load or store: it is dated now, so that only what comes after the wait is ordered behind it."""
    access = TensorAccessRecord(slot)
    access.waited = 1
    for number in range(access.columns):
        for part in range(access.lanes // LANES_OF_CELL):
            cell = CellRecord(cell_at(cta, access.column + number, access.lane + part * LANES_OF_CELL))
            # If another access has replaced this one in the cell since, the date is that of the other.
            if access.stores and not cell.flags & BY_CORE and warp_of(cell.write) == warp.index:
                cell.flags &= ~STORE_IN_FLIGHT
                if not keeps_date:
                    cell.write = launch.time << 32 | cell.write & 0xFFFFFFFF
            elif not access.stores and cell.read and warp_of(cell.read) == warp.index:
                cell.flags &= ~LOAD_IN_FLIGHT
                if not keeps_date:
                    cell.read = launch.time << 32 | cell.read & 0xFFFFFFFF


@native
def settle_access(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, slot: int) -> None:
    """Mark that a fence has followed a load or store."""
    access = TensorAccessRecord(slot)
    for number in range(access.columns):
        for part in range(access.lanes // LANES_OF_CELL):
            cell = CellRecord(cell_at(cta, access.column + number, access.lane + part * LANES_OF_CELL))
            if access.stores and warp_of(cell.write) == warp.index:
                cell.flags &= ~STORE_UNFENCED
            elif not access.stores and warp_of(cell.read) == warp.index:
                cell.flags &= ~LOAD_UNFENCED


@native
def tensor_fence(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, after: int, mask: int) -> int:
    """Execute tcgen05.fence: before_thread_sync for the accesses that were waited for, or after_thread_sync."""
    if mask == 0:
        return 0
    if after:
        for plane in range(launch.cluster_size):
            row = PLANE_BYTES * plane + ROW_BYTES * warp.index
            copy_bytes(cta.tensor_clock + row, cta.vector_clock + row, ROW_BYTES)
            for other in range(cta.warp_count):
                raise_to(cta.tensor_clock + row + 8 * other, load64(cta.relaxed_clock + row + 8 * other))
        return 0
    number = 0
    while number < warp.tensor_accesses:
        access = TensorAccessRecord(access_slot(cta, warp, number))
        if access.waited:
            settle_access(launch, cta, warp, access.address)
            drop_access(cta, warp, number)
        else:
            number += 1
    return 0


@native
def record_tensor_fault(launch: LaunchRecord, warp: WarpRecord, rule: int, site: int, lane: int, address: int) -> int:
    """Record which rule of tcgen05 is broken. Return 1."""
    kind = MISUSE
    if rule >= TensorRule.SHARED_RESERVED and rule != TensorRule.NO_PAIR:
        kind = DESCRIPTOR
    elif rule == TensorRule.OUTSIDE:
        kind = OUT_OF_BOUNDS
    elif rule == TensorRule.UNWRITTEN:
        kind = UNINITIALIZED
    elif rule == TensorRule.FENCE_BEFORE or rule == TensorRule.FENCE_AFTER:
        kind = NO_FENCE
    elif rule == TensorRule.FREED_IN_USE or (rule >= TensorRule.READ_BEFORE_COMMIT and rule != TensorRule.NO_PAIR):
        kind = RACE
    launch.fault_detail = rule
    return record_fault(launch, warp, kind, site, lane, address)
