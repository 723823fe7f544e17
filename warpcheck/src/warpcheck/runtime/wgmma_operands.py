"""The operands of wgmma in shared memory: the addresses of their bytes, and which of them are still being read.

A descriptor describes a matrix by chunks of 16 bytes. ``mn`` counts its rows, or of B its columns; along ``k`` a wgmma
always takes 32 bytes. PTX ISA manual, "Asynchronous Warpgroup Level Matrix Shared Memory Layout".

Major 0, K: chunk number 2 mn + c has half c of the 32 bytes of row mn (a tcgen05.cp of 128 bits has one half, so its
chunk mn is row mn). Eight rows are ``span`` bytes apart; the next
eight are ``stride`` bytes away. Without swizzle ``span`` is 16, and the other half is ``lead`` bytes away.

Major 1, MN: chunk number k (rows / 8) + j has 8 neighbors along mn, of 2 bytes each (of other types, which tcgen05.mma
has, ``per_chunk`` in place of 8). Eight k are ``span`` bytes apart; the next eight are ``stride`` bytes away, and the
next ``span`` bytes along mn are ``lead`` bytes away. Without swizzle the two are exchanged.

A swizzle permutes chunks within ``span`` bytes: it XORs bits 4 to 6 of an address with bits 7 to 9, less ``base``. With
atoms of 32 bytes, which only an MN-major operand of tcgen05.mma has, it XORs bits 5 and 6 with bits 7 and 8, and four k
are ``span`` bytes apart, not eight.
"""

from __future__ import annotations

from typing import NamedTuple

from warpcheck.layout import READS
from warpcheck.native import native, noinline
from warpcheck.runtime.access_history import access_id_of, thread_of
from warpcheck.runtime.records import CtaRecord, LaunchRecord, ReadRecord, WarpRecord
from warpcheck.runtime.tensor_records import A_OPERAND, B_OPERAND, COMMIT, QUEUED, SHIFT, TensorJobRecord, job_slot

__all__ = [
    "CHUNK",
    "begin_reads",
    "chunk_at",
    "end_reads",
    "find_product_read",
    "find_wgmma_read",
    "layout_of",
    "read_overlaps",
    "read_slot",
]

CHUNK = 16  # bytes


class OperandLayout(NamedTuple):
    """The layout of an operand: the fields of its descriptor, its major, and the rows from ``first`` on that count."""

    start: int
    lead: int
    stride: int
    span: int
    base: int
    major: int
    per_chunk: int
    first: int
    rows: int
    halves: int
    atom: int


@native
def layout_of(read: ReadRecord) -> OperandLayout:
    """Return the layout of the operand that a wgmma reads."""
    return OperandLayout(
        read.start,
        read.lead,
        read.stride,
        read.span,
        read.base,
        read.major,
        read.per_chunk,
        read.first,
        read.rows,
        read.halves,
        read.atom,
    )


@native
def chunk_at(layout: OperandLayout, chunk: int) -> int:
    """Return the offset of a chunk in shared memory."""
    lead = layout.lead
    stride = layout.stride
    span = layout.span
    if layout.major:
        chunks_of_k = layout.rows // layout.per_chunk
        k = chunk // chunks_of_k
        j = chunk % chunks_of_k + layout.first // layout.per_chunk
        per_span = span // CHUNK
        together = 8 >> layout.atom
        relative = j % per_span * CHUNK + k % together * span
        if span == CHUNK:
            relative += j * stride + k // together * lead
        else:
            relative += j // per_span * lead + k // together * stride
    else:
        row = chunk // layout.halves + layout.first
        half = chunk % layout.halves
        relative = row % 8 * span + row // 8 * stride + half * (lead if span == CHUNK else CHUNK)
    # The swizzle works on the address in shared memory, not on the position in the matrix.
    offset = layout.start + relative
    return offset ^ ((offset >> 7) - layout.base & span // CHUNK - 1 >> layout.atom) << 4 + layout.atom


@native
def read_slot(cta: CtaRecord, warp: WarpRecord, number: int) -> int:
    """Return the address of a warp's record of its read of that number."""
    return cta.operand_reads + (warp.index * READS + number % READS) * ReadRecord.size


@native
def begin_reads(cta: CtaRecord, warp: WarpRecord) -> None:
    """Reset the reads of a warp when its block begins."""
    cta.reads_in_flight = 0
    warp.reads_begun = 0
    warp.reads_ended = 0
    warp.wgmma_groups = 0
    warp.wgmma_waited = 0
    warp.wgmma_released = 0
    warp.wgmma_time = 0
    warp.tensor_accesses = 0
    warp.partial_mbarrier = 0


@native
def end_reads(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord) -> None:
    """End the reads of the groups that the warp has waited for."""
    while warp.reads_ended < warp.reads_begun:
        read = ReadRecord(read_slot(cta, warp, warp.reads_ended))
        # Groups are in order, so no later read has been waited for, either.
        if read.group >= warp.wgmma_waited:
            return
        read.waited_at = launch.time
        warp.reads_ended += 1
        cta.reads_in_flight -= 1


@noinline
def find_wgmma_read(cta: CtaRecord, address: int, size: int) -> int:
    """Return the access id of a wgmma in flight that reads any of ``size`` bytes of shared memory at ``address``, or
    0.

    A read is in flight until a warp of the warpgroup has waited for it: the four warps multiply together.
    """
    if cta.reads_in_flight == 0:
        return 0
    offset = address - cta.shared
    if cta.tensor_pending:
        product = find_product_read(cta, offset, size)
        if product:
            return product
    for warp_index in range(cta.warp_count):
        warp = WarpRecord(cta.warps + warp_index * cta.warp_stride)
        for read_number in range(warp.reads_ended, warp.reads_begun):
            read = ReadRecord(read_slot(cta, warp, read_number))
            may_overlap = read.group >= warp.wgmma_released and offset < read.high and read.low < offset + size
            if may_overlap and read_overlaps(read, offset, size):
                return access_id_of(read.site, warp_index * 32)
    return 0


@native
def find_product_read(cta: CtaRecord, offset: int, size: int) -> int:
    """Return the access id of a tcgen05.mma or cp that has yet to read any of these bytes of shared memory, or 0."""
    product = find_product_of(cta, offset, size, 0)
    if not product and cta.tensor_peer:
        return find_product_of(CtaRecord(cta.tensor_peer), offset, size, 1)
    return product


@native
def find_product_of(cta: CtaRecord, offset: int, size: int, of_peer: int) -> int:
    """Return the same for the products that a block has issued; ``of_peer``: only those of two blocks."""
    for number in range(cta.tensor_jobs_ended, cta.tensor_jobs_begun):
        job = TensorJobRecord(job_slot(cta, number))
        if job.state == QUEUED and job.operation != COMMIT and job.operation != SHIFT and job.pairs >= of_peer:
            a = ReadRecord(job.address + A_OPERAND)
            b = ReadRecord(job.address + B_OPERAND)
            overlaps_a = job.a_column < 0 and offset < a.high and a.low < offset + size
            if overlaps_a and read_overlaps(a, offset, size):
                return access_id_of(job.site, thread_of(job.access_id))
            if offset < b.high and b.low < offset + size and read_overlaps(b, offset, size):
                return access_id_of(job.site, thread_of(job.access_id))
    return 0


@native
def read_overlaps(read: ReadRecord, offset: int, size: int) -> int:
    """Return whether a read includes any of these bytes."""
    for chunk_number in range(read.halves * read.rows):
        chunk = chunk_at(layout_of(read), chunk_number)
        if offset < chunk + CHUNK and chunk < offset + size:
            return 1
    return 0
