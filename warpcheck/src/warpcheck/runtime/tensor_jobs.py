"""The queue of the tensor core: tcgen05.mma, cp, shift and commit, which are executed as late as possible.

The operations of one thread are executed in order. A commit is due when a warp waits for its mbarrier and nothing else
can run; with it, what its thread has issued before. Until then nobody can rely on a product: its cells are pending, and
so is its read of shared memory; the same holds for a copy and a shift. With a strided order an operation is executed at
once. PTX ISA manual, 9.7.16.6 (order), 9.7.16.9 (cp, shift), 9.7.16.10 (mma) and 9.7.16.12 (commit).
"""

from __future__ import annotations

from warpcheck.errors import FAULT_KINDS, FaultKind
from warpcheck.events import EventKind
from warpcheck.layout import LANES, Status
from warpcheck.native import call_code, extern, load64, lowest_bit, native
from warpcheck.runtime.access_history import access_id_of
from warpcheck.runtime.address_spaces import owner_of
from warpcheck.runtime.deferred_faults import defer_fault
from warpcheck.runtime.event_recorder import NO_BARRIER, find_mbarrier, record_barrier_event, record_event
from warpcheck.runtime.mbarriers import (
    ARRIVALS_MASK,
    EXCESS_ARRIVAL,
    EXPECTED_SHIFT,
    SEVERAL_LANES,
    arrive_for_tensor_core,
    pass_on_to_commit,
    record_mbarrier_fault,
    report_missing,
    require_init,
)
from warpcheck.runtime.memory import OPERANDS
from warpcheck.runtime.records import CountsRecord, CtaRecord, LaunchRecord, ReadRecord, WarpRecord
from warpcheck.runtime.tensor_access import record_tensor_fault
from warpcheck.runtime.tensor_cells import (
    BY_CORE,
    COPY_SHAPE,
    CORE_READ,
    CORE_UPDATE,
    CORE_WRITE,
    LANES_OF_CELL,
    ROW_COPY_SHAPE,
    SHIFT_SHAPE,
    WRITTEN,
    CellRecord,
    cell_at,
    check_cell,
    is_allocated,
    memory_address,
)
from warpcheck.runtime.tensor_copies import EACH_WARP, SHIFTED_COLUMNS, copy_to_tensor_memory, shift_rows
from warpcheck.runtime.tensor_operands import (
    DEPTH_BYTES,
    decode_descriptor,
    fill_image,
    fill_image_from_tensor_memory,
    lane_of_row,
)
from warpcheck.runtime.tensor_records import (
    A_OPERAND,
    B_OPERAND,
    COMMIT,
    COPY,
    DONE,
    JOBS,
    MULTIPLY,
    QUEUED,
    SHIFT,
    TensorJobRecord,
    job_slot,
)
from warpcheck.runtime.tensor_rules import TensorRule
from warpcheck.runtime.tensor_scales import BLOCKS, MXF8F6F4, decode_scales, fill_scales, scale_columns
from warpcheck.runtime.warpgroup import date_reads, read_chunks, sample_chunks

__all__ = [
    "A_IMAGE",
    "KINDS",
    "SCRATCH_BYTES",
    "carry_out_job",
    "execute_job",
    "finish_all_tensor_jobs",
    "finish_awaited_commit",
    "finish_oldest_tensor_job",
    "tensor_commit",
    "tensor_copy",
    "tensor_multiply",
    "tensor_shift",
]

KINDS = ("f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4")
F16, TF32, F8F6F4, I8 = range(4)
# Rows of operands, of 64 bits each.
D_ROW, A_ROW, B_ROW, DESCRIPTOR_ROW, ACCUMULATE_ROW, DISABLED_ROW, CODE_ROW, SCALES_ROW = (0, 1, 2, 3, 4, 5, 9, 10)
ROW_BYTES = 8 * LANES
LANES_OF_MEMORY = 128
A_COLUMNS = 8  # of A in tensor memory: 32 bytes along k
BARRIER_FAULT = FAULT_KINDS.index(FaultKind.BARRIER)
# Offsets in the scratch memory: the addresses of chunks, the images of the operands, the codes of their scale factors
# and these as numbers with their powers of two, for each of four blocks, and the operands as numbers.
A_IMAGE = 8 << 10
B_IMAGE = A_IMAGE + 128 * DEPTH_BYTES
A_CODES = B_IMAGE + 256 * DEPTH_BYTES
B_CODES = A_CODES + 128 * BLOCKS
FACTORS = B_CODES + 256 * BLOCKS
NUMBERS = FACTORS + 2 * (128 + 256) * 4 * BLOCKS
SCRATCH_BYTES = NUMBERS + (96 << 10)


@native
def tensor_multiply(
    launch: LaunchRecord,
    cta: CtaRecord,
    warp: WarpRecord,
    site: int,
    mask: int,
    kind: int,
    a_in_tensor: int,
    scale: int,
    pairs: int,
    groups: int,
) -> int:
    """Issue tcgen05.mma in each active lane. Site ``site`` reads shared memory, the next one accesses tensor memory.

    Args:
        pairs: Whether it is a product of two blocks (cta_group::2).
        groups: The scale factors of a row of A, or 0.
    """
    while mask:
        lane = lowest_bit(mask)
        mask &= mask - 1
        if issue_product(launch, cta, warp, site, lane, kind, a_in_tensor, scale, pairs, groups):
            return 1
    return 0


@native
def operand_of(warp: WarpRecord, row: int, lane: int) -> int:
    """Return an operand of 64 bits of a lane."""
    return load64(warp.address + OPERANDS + ROW_BYTES * row + 8 * lane)


@native
def new_job(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, site: int, lane: int, operation: int) -> int:
    """Return the address of the next record of the queue, filled in as far as all operations are alike."""
    if cta.tensor_jobs_begun - cta.tensor_jobs_ended == JOBS:
        finish_oldest_tensor_job(launch, cta)
    job = TensorJobRecord(job_slot(cta, cta.tensor_jobs_begun))
    job.operation = operation
    job.state = DONE
    job.warp = warp.address
    job.lane = lane
    job.site = site
    job.access_id = access_id_of(site, warp.index * LANES + lane)
    return job.address


@native
def queue_job(launch: LaunchRecord, cta: CtaRecord, job: TensorJobRecord) -> None:
    """Append the record of ``new_job`` to the queue."""
    job.state = QUEUED
    cta.tensor_jobs_begun += 1
    # In a strided order an operation is executed at once: this finds kernels that rely on its being late.
    if launch.reverse > 1:
        finish_oldest_tensor_job(launch, cta)


@native
def issue_product(
    launch: LaunchRecord,
    cta: CtaRecord,
    warp: WarpRecord,
    site: int,
    lane: int,
    kind: int,
    a_in_tensor: int,
    scale: int,
    pairs: int,
    groups: int,
) -> int:
    """Issue the product of one lane. Return whether it is a fault."""
    job = TensorJobRecord(new_job(launch, cta, warp, site, lane, MULTIPLY))
    job.access_id = access_id_of(site + 1, warp.index * LANES + lane)
    descriptor = operand_of(warp, DESCRIPTOR_ROW, lane) & 0xFFFFFFFF
    job.accumulates = operand_of(warp, ACCUMULATE_ROW, lane) & 1
    job.scale = scale
    job.disabled_low = operand_of(warp, DISABLED_ROW, lane)
    job.disabled_high = operand_of(warp, DISABLED_ROW + 1, lane)
    job.peer_disabled_low = operand_of(warp, DISABLED_ROW + 2, lane)
    job.peer_disabled_high = operand_of(warp, DISABLED_ROW + 3, lane)
    job.code = operand_of(warp, CODE_ROW, lane)
    job.pairs = pairs
    job.groups = groups
    rule = decode_instruction(job, descriptor, kind, a_in_tensor)
    if pairs and not cta.tensor_peer:
        rule = TensorRule.NO_PAIR
    launch.fault_value = descriptor
    if rule:
        return record_tensor_fault(launch, warp, rule, site + 1, lane, cta.tensor_memory)
    address = operand_of(warp, D_ROW, lane)
    job.column = address & 0xFFFF
    job.tensor_lane = address >> 16 & 127
    job.lane_step = 32 if job.m == 64 else LANES_OF_CELL
    job.a_column = -1
    job.shape = job.column | job.tensor_lane << 9 | job.m << 16 | job.n << 25 | kind << 35 | pairs << 38
    if issue_half(launch, cta, warp, cta, job, site, lane, kind, descriptor, a_in_tensor, address >> 16):
        return 1
    if pairs and issue_half(
        launch, cta, warp, CtaRecord(cta.tensor_peer), job, site, lane, kind, descriptor, a_in_tensor, address >> 16
    ):
        return 1
    record_event(launch, cta, warp.index, EventKind.MULTIPLY, site, NO_BARRIER, 0, 0)
    count_product(launch, job, site)
    queue_job(launch, cta, job)
    return 0


@native
def issue_half(
    launch: LaunchRecord,
    cta: CtaRecord,
    warp: WarpRecord,
    owner: CtaRecord,
    job: TensorJobRecord,
    site: int,
    lane: int,
    kind: int,
    descriptor: int,
    a_in_tensor: int,
    first_lane: int,
) -> int:
    """Check the accesses of a product to the memory of one block. Return whether one is a fault."""
    if check_placement(launch, owner, warp, job, site, lane, first_lane):
        return 1
    if issue_operands(launch, cta, warp, owner, job, site, lane, kind, descriptor, a_in_tensor):
        return 1
    if job.groups and issue_scales(launch, cta, warp, owner, job, site, lane):
        return 1
    if mark_accumulator(launch, cta, warp, owner, job, site + 1, lane):
        return 1
    owner.tensor_pending += 1
    # Stores to shared memory look for products that read it only while this count is not 0.
    owner.reads_in_flight += 1
    return 0


@native
def decode_instruction(job: TensorJobRecord, descriptor: int, kind: int, a_in_tensor: int) -> int:
    """Take over an instruction descriptor. Return a TensorRule. PTX ISA manual, 9.7.16.4.2."""
    if descriptor & 4:
        return TensorRule.SPARSE
    # Bits 6 and 29 are reserved, 30 and 31 belong to .ws, 0 and 1 to sparse products; only integers are saturated. With
    # scale factors, bit 31 is for K = 96 of sm_103a, and others are those of tensor_scales.
    reserved = 0x8000004B if job.groups else 0xE0800043
    if descriptor & reserved or (descriptor & 8 and kind != I8):
        return TensorRule.INSTRUCTION_RESERVED
    job.d_kind = 1 if job.groups else descriptor >> 4 & 3
    job.a_kind = descriptor >> 7 & 7
    job.b_kind = descriptor >> 10 & 7
    job.negates = descriptor >> 13 & 3
    job.n = (descriptor >> 17 & 63) << 3
    job.m = (descriptor >> 24 & 31) << 4
    highest = max(job.a_kind, job.b_kind)
    lowest = min(job.a_kind, job.b_kind)
    types = F8F6F4 if kind == MXF8F6F4 else kind
    if kind == F16:
        is_valid = job.d_kind <= 1 and highest <= 1
    elif kind == TF32:
        is_valid = job.d_kind == 1 and lowest == 2 and highest == 2
    elif types == F8F6F4:
        # 2, 6 and 7 are no type.
        is_valid = job.d_kind <= 1 and highest <= 5 and job.a_kind != 2 and job.b_kind != 2
    elif kind > MXF8F6F4:
        is_valid = lowest == 1 and highest == 1
    else:
        is_valid = job.d_kind == 2 and highest <= 1 and not job.negates
    if not is_valid:
        return TensorRule.INSTRUCTION_TYPES
    job.a_width = width_of(job.a_kind) if types == F8F6F4 else 0
    job.b_width = width_of(job.b_kind) if types == F8F6F4 else 0
    majors = descriptor >> 15 & 3
    is_narrow = kind > MXF8F6F4
    if (majors & 1 and (job.a_width or is_narrow)) or (majors & 2 and (job.b_width or is_narrow)):
        return TensorRule.NARROW_MAJOR
    if job.groups:
        rule = decode_scales(job, descriptor, kind)
        if rule:
            return rule
    # M counts the rows of both blocks of a pair (PTX ISA, 9.7.16.2.1). With scale factors one block has M = 128.
    step = 8 if job.m == 64 or (job.groups and not job.pairs) else 16
    is_m_valid = job.m == 128 or (job.m == (256 if job.pairs else 64) and not (job.groups and job.m == 64))
    if not is_m_valid or job.n < step or job.n > 256 or job.n % step:
        return TensorRule.INSTRUCTION_SHAPE
    return TensorRule.MAJOR if a_in_tensor and descriptor >> 15 & 1 else TensorRule.NONE


@native
def width_of(code: int) -> int:
    """Return the bits of an element that is padded in shared memory: 4 for e2m1, 6 for e2m3 and e3m2; else 0."""
    if code == 5:
        return 4
    return 6 if code >= 3 else 0


@native
def check_placement(
    launch: LaunchRecord,
    owner: CtaRecord,
    warp: WarpRecord,
    job: TensorJobRecord,
    site: int,
    lane: int,
    first_lane: int,
) -> int:
    """Check the address of D. Return whether it is a fault."""
    place = memory_address(owner, job.column, job.tensor_lane)
    # With M = 64, D may begin at lane 16 as well: it takes half of each quarter (layout F).
    if first_lane and (job.m != 64 or first_lane != 16):
        return record_tensor_fault(launch, warp, TensorRule.LANE_START, site + 1, lane, place)
    if not is_allocated(owner, job.column, columns_of(job)):
        return record_tensor_fault(launch, warp, TensorRule.OUTSIDE, site + 1, lane, place)
    return 0


@native
def columns_of(job: TensorJobRecord) -> int:
    """Return the columns of D in the tensor memory of one block.

    With M = 128, a block of a pair has half of the columns in lanes 0 to 63, and the others from lane 64 on (layout B).
    """
    if job.operation != MULTIPLY:
        return job.n
    return columns_of_half(job.m, job.n, job.pairs)


@native
def end_of_lanes(job: TensorJobRecord) -> int:
    """Return the lane behind those that a product, a copy, or a shift writes."""
    return job.tensor_lane + LANES if job.operation == SHIFT else LANES_OF_MEMORY


@native
def rows_of(job: TensorJobRecord) -> int:
    """Return the rows of A, and of D, that one block has."""
    return job.m >> job.pairs


@native
def issue_operands(
    launch: LaunchRecord,
    cta: CtaRecord,
    warp: WarpRecord,
    owner: CtaRecord,
    job: TensorJobRecord,
    site: int,
    lane: int,
    kind: int,
    descriptor: int,
    a_in_tensor: int,
) -> int:
    """Check the operands as reads. Return whether one is a fault."""
    element = 2 if kind == F16 else 4 if kind == TF32 else 1
    if a_in_tensor:
        if mark_operand(launch, cta, warp, owner, job, site, lane, operand_of(warp, A_ROW, lane)):
            return 1
    elif issue_operand(
        launch,
        cta,
        warp,
        owner,
        job.address + A_OPERAND,
        site,
        lane,
        A_ROW,
        rows_of(job),
        descriptor >> 15 & 1,
        element,
    ):
        return 1
    return issue_operand(
        launch,
        cta,
        warp,
        owner,
        job.address + B_OPERAND,
        site,
        lane,
        B_ROW,
        job.n >> job.pairs,
        descriptor >> 16 & 1,
        element,
    )


@native
def issue_operand(
    launch: LaunchRecord,
    cta: CtaRecord,
    warp: WarpRecord,
    owner: CtaRecord,
    read_address: int,
    site: int,
    lane: int,
    row: int,
    rows: int,
    major: int,
    element: int,
) -> int:
    """Check an operand in shared memory. Return whether it is a fault."""
    read = ReadRecord(read_address)
    descriptor = operand_of(warp, row, lane)
    rule = decode_descriptor(read, descriptor, rows, major, element, site)
    if rule:
        launch.fault_value = descriptor
        return record_tensor_fault(launch, warp, rule, site + 1, lane, cta.tensor_memory)
    return not read_chunks(launch, cta, warp, owner, read, site, launch.tensor_scratch)


@native
def mark_operand(
    launch: LaunchRecord,
    cta: CtaRecord,
    warp: WarpRecord,
    owner: CtaRecord,
    job: TensorJobRecord,
    site: int,
    lane: int,
    address: int,
) -> int:
    """Check A in tensor memory, and mark its cells as yet to be read. Return whether it is a fault."""
    job.a_column = address & 0xFFFF
    job.a_lane = address >> 16 & 127
    place = memory_address(owner, job.a_column, job.a_lane)
    if address >> 16 and (job.m != 64 or address >> 16 != 16):
        return record_tensor_fault(launch, warp, TensorRule.LANE_START, site + 1, lane, place)
    if not is_allocated(owner, job.a_column, A_COLUMNS):
        return record_tensor_fault(launch, warp, TensorRule.OUTSIDE, site + 1, lane, place)
    for column in range(job.a_column, job.a_column + A_COLUMNS):
        for row in range(0, rows_of(job), LANES_OF_CELL):
            if mark_read(
                launch, cta, warp, owner, job, site, lane, column, lane_of_row(row, job.lane_step, job.a_lane)
            ):
                return 1
    return 0


@native
def mark_read(
    launch: LaunchRecord,
    cta: CtaRecord,
    warp: WarpRecord,
    owner: CtaRecord,
    job: TensorJobRecord,
    site: int,
    lane: int,
    column: int,
    cell_lane: int,
) -> int:
    """Check a cell that a product reads, and mark it as yet to be read. Return whether it is a fault."""
    cell = CellRecord(cell_at(owner, column, cell_lane))
    rule = check_cell(launch, cta, warp, owner, warp.index * LANES + lane, cell, CORE_READ, 0)
    if rule:
        used = memory_address(owner, column, cell_lane)
        return record_tensor_fault(launch, warp, rule, site + 1, lane, used)
    cell.operands_pending += 1
    cell.operand_id = job.access_id
    cell.is_read = 1
    cell.core_block = cta.block_number
    return 0


@native
def issue_scales(
    launch: LaunchRecord,
    cta: CtaRecord,
    warp: WarpRecord,
    owner: CtaRecord,
    job: TensorJobRecord,
    site: int,
    lane: int,
) -> int:
    """Check the scale factors, and mark their cells as yet to be read. Return whether it is a fault."""
    for operand in range(2):
        # CUTLASS keeps the scale factor ID in bits 30 and 31 of the address as well.
        address = operand_of(warp, SCALES_ROW + operand, lane) & 0x3FFFFFFF
        column = address & 0xFFFF
        columns = scale_columns(columns_of(job) if operand else rows_of(job))
        place = memory_address(owner, column, 0)
        if address >> 16:
            return record_tensor_fault(launch, warp, TensorRule.LANE_START, site + 1, lane, place)
        if not is_allocated(owner, column, columns):
            return record_tensor_fault(launch, warp, TensorRule.OUTSIDE, site + 1, lane, place)
        if operand:
            job.b_scales = column
        else:
            job.a_scales = column
        for number in range(column, column + columns):
            for cell_lane in range(0, LANES_OF_MEMORY, LANES_OF_CELL):
                if mark_read(launch, cta, warp, owner, job, site, lane, number, cell_lane):
                    return 1
    return 0


@native
def mark_accumulator(
    launch: LaunchRecord,
    cta: CtaRecord,
    warp: WarpRecord,
    owner: CtaRecord,
    job: TensorJobRecord,
    site: int,
    lane: int,
) -> int:
    """Check D, or what a copy or a shift writes, and mark it as yet to be written. Return whether it is a fault."""
    thread = warp.index * LANES + lane
    kind = CORE_UPDATE if job.accumulates else CORE_WRITE
    for column in range(job.column, job.column + columns_of(job)):
        for cell_lane in range(job.tensor_lane, end_of_lanes(job), job.lane_step):
            cell = CellRecord(cell_at(owner, column, cell_lane))
            rule = check_cell(launch, cta, warp, owner, thread, cell, kind, job.shape)
            if rule:
                used = memory_address(owner, column, cell_lane)
                return record_tensor_fault(launch, warp, rule, site, lane, used)
            cell.pending += 1
            cell.pending_id = job.access_id
            cell.is_read = 0
            cell.core_block = cta.block_number
            cell.shape = job.shape
    return 0


@native
def count_product(launch: LaunchRecord, job: TensorJobRecord, site: int) -> None:
    """Count the reads of shared memory, as for wgmma: 4 rows of 32 bytes in a wavefront."""
    counts = CountsRecord(launch.counts + site * CountsRecord.size)
    rows = job.n if job.a_column >= 0 else job.m + job.n
    if counts.requests == 0:
        sample_chunks(launch, site, launch.tensor_scratch, 2 * job.n >> job.pairs)
    counts.requests += 1
    counts.lanes += 2 * rows
    counts.wavefronts += rows // 4
    counts.least += rows // 4


@native
def tensor_copy(
    launch: LaunchRecord,
    cta: CtaRecord,
    warp: WarpRecord,
    site: int,
    mask: int,
    rows: int,
    columns: int,
    spread: int,
    width: int,
    pairs: int,
) -> int:
    """Issue tcgen05.cp in each active lane. Site ``site`` reads shared memory, the next one writes tensor memory.

    The first row has the address in tensor memory, the second the shared memory descriptor.

    Args:
        spread: Which lanes have a row; see ``tensor_copies``.
        width: The bits of elements that are widened to bytes, or 0.
        pairs: Whether both blocks of a pair copy, each from its own shared memory.
    """
    while mask:
        lane = lowest_bit(mask)
        mask &= mask - 1
        job = TensorJobRecord(new_job(launch, cta, warp, site, lane, COPY))
        job.access_id = access_id_of(site + 1, warp.index * LANES + lane)
        job.m = rows
        job.n = columns
        job.spread = spread
        job.width = width
        job.pairs = pairs
        job.accumulates = 0
        job.groups = 0
        job.a_column = 0
        job.shape = ROW_COPY_SHAPE if spread == EACH_WARP else COPY_SHAPE
        if issue_copy_or_shift(launch, cta, warp, job, site, lane):
            return 1
    return 0


@native
def issue_copy_or_shift(
    launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, job: TensorJobRecord, site: int, lane: int
) -> int:
    """Check the accesses of a copy or a shift in one block or in both blocks of a pair, and queue the operation.

    Return whether an access is a fault.
    """
    if job.pairs and not cta.tensor_peer:
        # A shift has no site that reads shared memory.
        tensor_site = site if job.operation == SHIFT else site + 1
        return record_tensor_fault(launch, warp, TensorRule.NO_PAIR, tensor_site, lane, cta.tensor_memory)
    for half in range(1 + job.pairs):
        owner = CtaRecord(cta.tensor_peer if half else cta.address)
        if job.operation == SHIFT:
            is_fault = issue_shift(launch, cta, warp, owner, job, site, lane)
        else:
            is_fault = issue_copy(launch, cta, warp, owner, job, site, lane)
        if is_fault:
            return 1
    queue_job(launch, cta, job)
    return 0


@native
def issue_copy(
    launch: LaunchRecord,
    cta: CtaRecord,
    warp: WarpRecord,
    owner: CtaRecord,
    job: TensorJobRecord,
    site: int,
    lane: int,
) -> int:
    """Check the accesses of a copy to the memory of one block. Return whether one is a fault."""
    address = operand_of(warp, 0, lane)
    job.column = address & 0xFFFF
    job.tensor_lane = address >> 16 & 127
    place = memory_address(owner, job.column, job.tensor_lane)
    job.lane_step = LANES if job.spread == EACH_WARP else LANES_OF_CELL
    if address >> 16 >= (LANES if job.spread == EACH_WARP else 1):
        return record_tensor_fault(launch, warp, TensorRule.LANE_START, site + 1, lane, place)
    if not is_allocated(owner, job.column, job.n):
        return record_tensor_fault(launch, warp, TensorRule.OUTSIDE, site + 1, lane, place)
    read = ReadRecord(job.address + B_OPERAND)
    descriptor = operand_of(warp, 1, lane)
    rule = decode_descriptor(read, descriptor, job.m, 0, 1, site)
    if rule:
        launch.fault_value = descriptor
        return record_tensor_fault(launch, warp, rule, site + 1, lane, cta.tensor_memory)
    read.halves = job.n // 4
    if not read_chunks(launch, cta, warp, owner, read, site, launch.tensor_scratch):
        return 1
    if mark_accumulator(launch, cta, warp, owner, job, site + 1, lane):
        return 1
    owner.tensor_pending += 1
    owner.reads_in_flight += 1
    return 0


@native
def tensor_shift(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, site: int, mask: int, pairs: int) -> int:
    """Issue tcgen05.shift in each active lane. The first row has the address in tensor memory.

    Args:
        pairs: Whether the lanes of both blocks of a pair are shifted.
    """
    while mask:
        lane = lowest_bit(mask)
        mask &= mask - 1
        job = TensorJobRecord(new_job(launch, cta, warp, site, lane, SHIFT))
        job.n = SHIFTED_COLUMNS
        job.pairs = pairs
        job.accumulates = 1
        job.lane_step = LANES_OF_CELL
        job.shape = SHIFT_SHAPE
        if issue_copy_or_shift(launch, cta, warp, job, site, lane):
            return 1
    return 0


@native
def issue_shift(
    launch: LaunchRecord,
    cta: CtaRecord,
    warp: WarpRecord,
    owner: CtaRecord,
    job: TensorJobRecord,
    site: int,
    lane: int,
) -> int:
    """Check the accesses of a shift to the memory of one block. Return whether one is a fault."""
    address = operand_of(warp, 0, lane)
    job.column = address & 0xFFFF
    job.tensor_lane = address >> 16 & 127
    place = memory_address(owner, job.column, job.tensor_lane)
    if address >> 16 >= LANES_OF_MEMORY or address >> 16 & LANES - 1:
        return record_tensor_fault(launch, warp, TensorRule.LANE_START, site, lane, place)
    if not is_allocated(owner, job.column, SHIFTED_COLUMNS):
        return record_tensor_fault(launch, warp, TensorRule.OUTSIDE, site, lane, place)
    if mark_accumulator(launch, cta, warp, owner, job, site, lane):
        return 1
    owner.tensor_pending += 1
    return 0


@native
def tensor_commit(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, site: int, mask: int, multicasts: int) -> int:
    """Issue tcgen05.commit in each active lane.

    The first row has the address of the mbarrier, the second the blocks of a multicast.
    """
    previous_address = 0
    lanes_at_address = 0
    while mask:
        lane = lowest_bit(mask)
        mask &= mask - 1
        address = operand_of(warp, 0, lane)
        if address != previous_address:
            previous_address = address
            lanes_at_address = 0
        lanes_at_address += 1
        owner = CtaRecord(owner_of(launch, cta, address))
        record_address = 0
        if owner.address:
            record_address = find_mbarrier(owner, address)
        if not record_address:
            return report_missing(launch, cta, warp, site, lane, address)
        require_init(launch, cta, warp, owner, record_address, site, lane)
        # The commit of a lane that has issued no MMA arrives at once, so a phase would end before the MMAs of the warp.
        if lanes_at_address > load64(address) >> EXPECTED_SHIFT & ARRIVALS_MASK:
            return record_mbarrier_fault(launch, warp, SEVERAL_LANES, site, lane, address)
        job = TensorJobRecord(new_job(launch, cta, warp, site, lane, COMMIT))
        job.owner = owner.address
        job.barrier = address - owner.shared
        job.targets = operand_of(warp, 1, lane) & 0xFFFF if multicasts else 0
        for rank in range(launch.cluster_size):
            target = CtaRecord(commit_owner(cta, job, rank))
            if target.address and target.block_began:
                pass_on_to_commit(launch, cta, warp, target, target.shared + job.barrier)
        launch.time += 1
        queue_job(launch, cta, job)
    return 0


# Execution


@native
def finish_awaited_commit(launch: LaunchRecord, cta: CtaRecord) -> int:
    """Execute a commit of the cluster for whose mbarrier a warp waits, and what its thread has issued before.

    Return whether there was one.
    """
    for rank in range(launch.cluster_size):
        peer = CtaRecord(load64(cta.peers + 8 * rank))
        for number in range(peer.tensor_jobs_ended, peer.tensor_jobs_begun):
            job = TensorJobRecord(job_slot(peer, number))
            # A product that no commit tracks may stay in the queue. Executing it early would hide a wait that is
            # missing.
            if job.state == QUEUED and job.operation == COMMIT and is_commit_awaited(launch, peer, job):
                finish_thread(launch, peer, number)
                return 1
    return 0


@native
def is_commit_awaited(launch: LaunchRecord, cta: CtaRecord, job: TensorJobRecord) -> int:
    """Return whether a warp waits for an mbarrier at which a commit arrives."""
    for rank in range(launch.cluster_size):
        owner = CtaRecord(commit_owner(cta, job, rank))
        if owner.address:
            for warp_index in range(owner.warp_count):
                warp = WarpRecord(owner.warps + warp_index * owner.warp_stride)
                if warp.status == Status.SUSPENDED and warp.awaited_mbarrier == owner.shared + job.barrier:
                    return 1
    return 0


@native
def commit_owner(cta: CtaRecord, job: TensorJobRecord, rank: int) -> int:
    """Return the record of the block of a rank if a commit arrives at its mbarrier; else 0."""
    if not job.targets:
        return job.owner if rank == 0 else 0
    return load64(cta.peers + 8 * rank) if job.targets >> rank & 1 else 0


@native
def finish_thread(launch: LaunchRecord, cta: CtaRecord, last: int) -> None:
    """Execute the operation ``last``, and before it those that the same thread has issued earlier."""
    final = TensorJobRecord(job_slot(cta, last))
    for number in range(cta.tensor_jobs_ended, last + 1):
        job = TensorJobRecord(job_slot(cta, number))
        # Products of one thread are executed in order (PTX ISA, 9.7.16.6.2); those of other threads may stay behind.
        if job.state == QUEUED and job.warp == final.warp and job.lane == final.lane:
            execute_job(launch.address, cta.address, job.address)
    retire_jobs(cta)


@native
def finish_oldest_tensor_job(launch: LaunchRecord, cta: CtaRecord) -> int:
    """Execute the oldest operation. Return whether there was one."""
    if cta.tensor_jobs_ended == cta.tensor_jobs_begun:
        return 0
    finish_thread(launch, cta, cta.tensor_jobs_ended)
    return 1


@native
def finish_all_tensor_jobs(launch: LaunchRecord, cta: CtaRecord) -> None:
    """Execute what a block that has exited has left in the queue."""
    while cta.tensor_jobs_ended < cta.tensor_jobs_begun:
        finish_oldest_tensor_job(launch, cta)


@native
def retire_jobs(cta: CtaRecord) -> None:
    """Drop the oldest operations that are done."""
    oldest = TensorJobRecord(job_slot(cta, cta.tensor_jobs_ended))
    while cta.tensor_jobs_ended < cta.tensor_jobs_begun and oldest.state == DONE:
        cta.tensor_jobs_ended += 1
        oldest = TensorJobRecord(job_slot(cta, cta.tensor_jobs_ended))


@extern
def execute_job(launch: int, cta: int, job: int) -> int:
    """Run ``carry_out_job``, compiled once for all callers."""
    raise NotImplementedError


@native
def carry_out_job(launch: LaunchRecord, cta: CtaRecord, job: TensorJobRecord) -> int:
    """Execute an operation of the queue."""
    launch.time += 1
    job.state = DONE
    if job.operation == COMMIT:
        arrive(launch, cta, job)
    elif job.operation == COPY:
        copy_half(launch, cta, cta, job)
        if job.pairs:
            copy_half(launch, cta, CtaRecord(cta.tensor_peer), job)
    elif job.operation == SHIFT:
        shift_half(launch, cta, cta, job)
        if job.pairs:
            shift_half(launch, cta, CtaRecord(cta.tensor_peer), job)
    else:
        multiply(launch, cta, job)
    return 0


@native
def multiply(launch: LaunchRecord, cta: CtaRecord, job: TensorJobRecord) -> None:
    """Execute a product, and date its accesses to tensor memory now."""
    job.a_image = launch.tensor_scratch + A_IMAGE
    job.b_image = launch.tensor_scratch + B_IMAGE
    job.numbers = launch.tensor_scratch + NUMBERS
    job.a_codes = launch.tensor_scratch + A_CODES
    job.b_codes = launch.tensor_scratch + B_CODES
    job.factors = launch.tensor_scratch + FACTORS
    b = ReadRecord(job.address + B_OPERAND)
    if not job.pairs:
        fill_image(cta, b, job.b_image, job.b_width)
        multiply_half(launch, cta, cta, job)
        return
    # The block of even rank has the first half of A's rows and of B's columns (PTX ISA, 9.7.16.5).
    even = CtaRecord(cta.tensor_peer if cta.rank & 1 else cta.address)
    odd = CtaRecord(even.tensor_peer)
    fill_image(even, b, job.b_image, job.b_width)
    fill_image(odd, b, job.b_image + job.n // 2 * DEPTH_BYTES, job.b_width)
    multiply_half(launch, cta, even, job)
    # Each block has lanes of D of its own, so each has its own mask of disabled lanes.
    job.disabled_low = job.peer_disabled_low
    job.disabled_high = job.peer_disabled_high
    multiply_half(launch, cta, odd, job)


@native
def multiply_half(launch: LaunchRecord, cta: CtaRecord, owner: CtaRecord, job: TensorJobRecord) -> None:
    """Execute the part of a product whose rows of D are in the tensor memory of one block."""
    rows = rows_of(job)
    warp = WarpRecord(job.warp)
    date_reads(launch, cta, warp, owner, ReadRecord(job.address + B_OPERAND), job.site, job.lane)
    if job.a_column >= 0:
        fill_image_from_tensor_memory(owner, job.a_column, job.a_lane, rows, job.lane_step, job.a_image)
        finish_operand(launch, owner, job)
    else:
        date_reads(launch, cta, warp, owner, ReadRecord(job.address + A_OPERAND), job.site, job.lane)
        fill_image(owner, ReadRecord(job.address + A_OPERAND), job.a_image, job.a_width)
    job.memory = owner.tensor_memory
    if job.groups:
        fill_scales(owner, job, rows)
        finish_scales(launch, owner, job)
    call_multiplier(job, rows)
    finish_writes(launch, cta, owner, job)


@native
def copy_half(launch: LaunchRecord, cta: CtaRecord, owner: CtaRecord, job: TensorJobRecord) -> None:
    """Execute a copy in one block, and date its accesses now."""
    read = ReadRecord(job.address + B_OPERAND)
    date_reads(launch, cta, WarpRecord(job.warp), owner, read, job.site, job.lane)
    copy_to_tensor_memory(owner, job, read, launch.tensor_scratch + A_IMAGE)
    finish_writes(launch, cta, owner, job)


@native
def shift_half(launch: LaunchRecord, cta: CtaRecord, owner: CtaRecord, job: TensorJobRecord) -> None:
    """Execute a shift in one block, and date its accesses now."""
    shift_rows(owner, job)
    finish_writes(launch, cta, owner, job)


@native
def finish_writes(launch: LaunchRecord, cta: CtaRecord, owner: CtaRecord, job: TensorJobRecord) -> None:
    """Date what a product, a copy, or a shift has written in one block."""
    owner.tensor_pending -= 1
    if job.operation != SHIFT:
        owner.reads_in_flight -= 1
    for column in range(job.column, job.column + columns_of(job)):
        for cell_lane in range(job.tensor_lane, end_of_lanes(job), job.lane_step):
            cell = CellRecord(cell_at(owner, column, cell_lane))
            cell.pending -= 1
            # The product is dated when it is executed: only a thread that acquires a later arrival is ordered behind
            # it.
            cell.flags = WRITTEN | BY_CORE
            cell.write = launch.time << 32 | job.access_id
            cell.core_block = cta.block_number
            cell.read = 0
            cell.operand_read = 0


@native
def call_multiplier(job: TensorJobRecord, rows: int) -> None:
    """Call the machine code for the rows of one block: in layout B once for each half of the columns."""
    m = job.m
    n = job.n
    image = job.b_image
    job.m = rows
    job.n = columns_of_half(m, n, job.pairs)
    call_code(job.code, job.address)
    if job.n != n:
        job.b_image = image + job.n * DEPTH_BYTES
        job.b_codes += job.n * BLOCKS
        job.tensor_lane = 64
        call_code(job.code, job.address)
        job.b_image = image
        job.b_codes -= job.n * BLOCKS
        job.tensor_lane = 0
    job.m = m
    job.n = n


@native
def columns_of_half(m: int, n: int, pairs: int) -> int:
    """Return the columns that one call of the machine code multiplies; see ``columns_of``."""
    return n // 2 if pairs and m == 128 else n


@native
def finish_operand(launch: LaunchRecord, owner: CtaRecord, job: TensorJobRecord) -> None:
    """Date the read of A in tensor memory now."""
    for column in range(job.a_column, job.a_column + A_COLUMNS):
        for row in range(0, rows_of(job), LANES_OF_CELL):
            finish_read(launch, owner, job, column, lane_of_row(row, job.lane_step, job.a_lane))


@native
def finish_scales(launch: LaunchRecord, owner: CtaRecord, job: TensorJobRecord) -> None:
    """Date the reads of the scale factors now."""
    for operand in range(2):
        first = job.b_scales if operand else job.a_scales
        columns = scale_columns(columns_of(job) if operand else rows_of(job))
        for column in range(first, first + columns):
            for cell_lane in range(0, LANES_OF_MEMORY, LANES_OF_CELL):
                finish_read(launch, owner, job, column, cell_lane)


@native
def finish_read(launch: LaunchRecord, owner: CtaRecord, job: TensorJobRecord, column: int, lane: int) -> None:
    """Date the read of a cell now."""
    cell = CellRecord(cell_at(owner, column, lane))
    cell.operands_pending -= 1
    cell.operand_read = launch.time << 32 | job.access_id


@native
def arrive(launch: LaunchRecord, cta: CtaRecord, job: TensorJobRecord) -> None:
    """Arrive at the mbarriers of a commit: whoever waits for them knows the products of the thread until now."""
    warp = WarpRecord(job.warp)
    for rank in range(launch.cluster_size):
        owner = CtaRecord(commit_owner(cta, job, rank))
        if owner.address and owner.block_began:
            address = owner.shared + job.barrier
            record_barrier_event(launch, owner, warp.index, EventKind.ARRIVE, job.site, owner, address, 0)
            if not arrive_for_tensor_core(launch, owner, address, cta, warp.index):
                launch.fault_detail = EXCESS_ARRIVAL
                defer_fault(launch, cta, warp, BARRIER_FAULT, job.site, job.lane, address, 8)
