"""The operands of wgmma in shared memory: where their bytes are, and which of them are still being read.

A descriptor describes a matrix by chunks of 16 bytes. ``mn`` counts its rows, or of B its columns; along ``k`` a wgmma
always takes 32 bytes. PTX ISA manual, "Asynchronous Warpgroup Level Matrix Shared Memory Layout".

major 0, K: chunk number 2 mn + c has half c of the 32 bytes of row mn. Eight rows are ``span`` bytes apart; eight more
are ``stride`` bytes away. Without swizzle ``span`` is 16, and the other half is ``lead`` bytes away.
major 1, MN: chunk number k (rows / 8) + j has 8 neighbors along mn, of 2 bytes each. Eight k are ``span`` bytes apart;
eight more are ``stride`` bytes away, and the next ``span`` bytes along mn are ``lead`` bytes away. Without swizzle the
two change places.

A swizzle exchanges chunks within ``span`` bytes: bits 4 to 6 of an address take those of bits 7 to 9, less ``base``.
"""

from __future__ import annotations

from warpcheck.layout import READS
from warpcheck.native import apart, native
from warpcheck.runtime.history import SITE
from warpcheck.runtime.records import CtaRecord, LaunchRecord, ReadRecord, WarpRecord

__all__ = ["CHUNK", "begin_reads", "chunk_at", "end_reads", "read_slot", "reads_any", "wgmma_reads"]

CHUNK = 16  # bytes


@native
def chunk_at(
    start: int, lead: int, stride: int, span: int, base: int, major: int, first: int, rows: int, number: int
) -> int:
    """The offset in shared memory of a chunk of ``rows`` rows from row ``first`` on."""
    if major:
        k, j = number // (rows // 8), number % (rows // 8) + first // 8
        per_span = span // CHUNK
        place = j % per_span * CHUNK + k % 8 * span
        if span == CHUNK:
            place += j * stride + k // 8 * lead
        else:
            place += j // per_span * lead + k // 8 * stride
    else:
        row = (number >> 1) + first
        place = row % 8 * span + row // 8 * stride + (number & 1) * (lead if span == CHUNK else CHUNK)
    offset = start + place
    return offset ^ ((offset >> 7) - base & span // CHUNK - 1) << 4


@native
def read_slot(cta: CtaRecord, warp: WarpRecord, number: int) -> int:
    """Where a warp remembers its read of that number."""
    return cta.reads + (warp.index * READS + number % READS) * ReadRecord.size


@native
def begin_reads(cta: CtaRecord, warp: WarpRecord) -> None:
    """A block begins: the warp has no wgmma in flight."""
    cta.unwaited = 0
    warp.reads_begun = 0
    warp.reads_ended = 0
    warp.wgmma_groups = 0
    warp.wgmma_waited = 0
    warp.wgmma_released = 0
    warp.wgmma_time = 0
    warp.loose = 0


@native
def end_reads(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord) -> None:
    """The warp has waited for what these groups have read."""
    while warp.reads_ended < warp.reads_begun:
        read = ReadRecord(read_slot(cta, warp, warp.reads_ended))
        if read.group >= warp.wgmma_waited:
            return
        read.until = launch.time
        warp.reads_ended += 1
        cta.unwaited -= 1


@apart
def wgmma_reads(cta: CtaRecord, address: int, size: int) -> int:
    """The trace of a wgmma in flight that reads any of ``size`` bytes of shared memory from ``address`` on, or 0.

    In flight is what no warp of the warpgroup has waited for: they multiply together.
    """
    if cta.unwaited == 0:
        return 0
    offset = address - cta.shared
    for number in range(cta.warp_count):
        warp = WarpRecord(cta.warps + number * cta.warp_stride)
        for place in range(warp.reads_ended, warp.reads_begun):
            read = ReadRecord(read_slot(cta, warp, place))
            near = read.group >= warp.wgmma_released and offset < read.high and read.low < offset + size
            if near and reads_any(read, offset, size):
                return read.site + 1 << SITE | number * 32
    return 0


@native
def reads_any(read: ReadRecord, offset: int, size: int) -> int:
    """Whether a read takes any of these bytes."""
    for number in range(2 * read.rows):
        chunk = chunk_at(
            read.start, read.lead, read.stride, read.span, read.base, read.major, read.first, read.rows, number
        )
        if offset < chunk + CHUNK and chunk < offset + size:
            return 1
    return 0
