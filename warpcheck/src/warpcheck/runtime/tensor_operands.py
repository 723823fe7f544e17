"""The operands of tcgen05.mma: descriptors, the memory that they describe, and their images for the product.

An image has the 32 bytes of each row of A, or of each column of B, along k. PTX ISA manual, 9.7.16.4.1, "Shared memory
descriptor", and 9.7.16.10.5, "Data path layout organization".
"""

from __future__ import annotations

from warpcheck.native import copy_bytes, load8, load32, native, store8, store32
from warpcheck.runtime.records import CtaRecord, ReadRecord
from warpcheck.runtime.tensor_cells import memory_address
from warpcheck.runtime.tensor_rules import TensorRule
from warpcheck.runtime.wgmma_operands import CHUNK, chunk_at, layout_of

__all__ = [
    "DEPTH_BYTES",
    "decode_descriptor",
    "fill_image",
    "fill_image_from_tensor_memory",
    "lane_of_row",
    "widen_chunk",
]

DEPTH_BYTES = 32  # of a row along k, whatever the type
RESERVED = 0xC000 | 0xC000 << 16 | 0xFF << 53 | 1 << 52  # bits that mean nothing on sm_100a


@native
def decode_descriptor(read: ReadRecord, descriptor: int, rows: int, major: int, element: int, site: int) -> int:
    """Take over a shared memory descriptor. Return a TensorRule.

    Args:
        element: The bytes of an element.
    """
    if descriptor & RESERVED:
        return TensorRule.SHARED_RESERVED
    if descriptor >> 46 & 7 != 1:
        return TensorRule.SHARED_VERSION
    mode = descriptor >> 61 & 7
    span = 0
    if mode == 0:
        span = CHUNK
    elif mode == 2 or (mode == 1 and major):
        span = 128
    elif mode == 4:
        span = 64
    elif mode == 6:
        span = 32
    if not span:
        return TensorRule.SHARED_SWIZZLE
    read.group = 0
    read.position = 0
    read.waited_at = 0
    read.site = site
    read.start = (descriptor & 0x3FFF) << 4
    read.lead = (descriptor >> 16 & 0x3FFF) << 4
    read.stride = (descriptor >> 32 & 0x3FFF) << 4
    read.span = span
    read.base = descriptor >> 49 & 7
    read.major = major
    read.per_chunk = CHUNK // element
    read.first = 0
    read.rows = rows
    read.halves = 2
    read.atom = mode == 1
    return TensorRule.NONE


@native
def fill_image(cta: CtaRecord, read: ReadRecord, image: int, width: int) -> None:
    """Copy an operand from shared memory.

    Args:
        width: 4 or 6 if a chunk has 16 elements of so many bits, which become bytes; else 0.
    """
    layout = layout_of(read)
    if width:
        for chunk in range(2 * read.rows):
            widen_chunk(image + CHUNK * chunk, cta.shared + chunk_at(layout, chunk), width)
        return
    if not read.major:
        for chunk in range(2 * read.rows):
            copy_bytes(image + CHUNK * chunk, cta.shared + chunk_at(layout, chunk), CHUNK)
        return
    # MN-major: a chunk has neighbors along mn, which are rows of the image.
    per_chunk = read.per_chunk
    element = CHUNK // per_chunk
    chunks_of_k = read.rows // per_chunk
    for chunk in range(2 * read.rows):
        source = cta.shared + chunk_at(layout, chunk)
        target = image + chunk % chunks_of_k * per_chunk * DEPTH_BYTES + chunk // chunks_of_k * element
        for neighbor in range(per_chunk):
            copy_element(target + neighbor * DEPTH_BYTES, source + neighbor * element, element)


@native
def widen_chunk(target: int, source: int, width: int) -> None:
    """Copy 16 elements of 4 or 6 bits, which are contiguous in front of a chunk, to the low bits of 16 bytes."""
    for element in range(CHUNK):
        bit = width * element
        word = load8(source + (bit >> 3)) | load8(source + (bit >> 3) + 1) << 8
        store8(target + element, word >> (bit & 7) & (1 << width) - 1)


@native
def copy_element(target: int, source: int, size: int) -> None:
    """Copy an element of 1, 2 or 4 bytes."""
    if size == 4:
        store32(target, load32(source))
        return
    store8(target, load8(source))
    if size == 2:
        store8(target + 1, load8(source + 1))


@native
def fill_image_from_tensor_memory(cta: CtaRecord, column: int, lane: int, rows: int, step: int, image: int) -> None:
    """Copy A from tensor memory: along k it takes 8 columns of 32 bits."""
    for row in range(rows):
        for word in range(DEPTH_BYTES // 4):
            source = memory_address(cta, column + word, lane_of_row(row, step, lane))
            store32(image + row * DEPTH_BYTES + 4 * word, load32(source))


@native
def lane_of_row(row: int, step: int, lane: int) -> int:
    """Return the lane of a row of A: 16 rows are neighbors, and the next 16 are ``step`` lanes away.

    The step is 16, but in layout F (M = 64, PTX ISA, 9.7.16.10.5) it is 32.
    """
    return row // 16 * step + row % 16 + lane
