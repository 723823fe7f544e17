"""The box of a bulk or tensor copy: which bytes of a tensor, or of a contiguous range, go where in shared memory.

A box consists of rows of elements, which are contiguous in shared memory. With a swizzle each row takes a span of its
own, and pieces of 16 bytes are permuted: bits 4 to 6 of an offset are XORed with as many of bits 7 to 9 as the span
has; with atoms of 32 bytes, bits 5 and 6 with bits 7 and 8. Elements outside of the tensor are filled by a load, and
skipped by a store. The innermost axis has no element stride, whatever the map says. A contiguous range without a tensor
map is a box of one row. What no manual says was measured on an H200; a test replays the measurements.

In im2col mode (PTX ISA, 5.5.4) the rows are pixels, with their channels, of images of one to three axes. They follow
each other along W, then H, D, and N, in steps, from a corner of the bounding box to the opposite one. A copy begins at
any pixel of the box; each further pixel along an axis begins at the lower corner again. Offsets of the instruction move
the box.

Two elements of 4 bits count as one of a byte. Elements of 4 and 6 bits with gaps count by sixteens: these have 16 bytes
in shared memory, and 8 or 12 bytes, ``stored``, in global memory and for the mbarrier, as CUTLASS counts them.
"""

from __future__ import annotations

import numpy as np

from warpcheck import tensor_map
from warpcheck.layout import Code
from warpcheck.native import View, copy_bytes, fill_bytes, load32, load64, native, store32, store64
from warpcheck.runtime.copy_rules import CopyRule
from warpcheck.runtime.records import field_offset
from warpcheck.runtime.reductions import combine

__all__ = [
    "AXES",
    "BULK",
    "OFFSETS",
    "PIECE",
    "SPATIAL_AXES",
    "START",
    "BulkRecord",
    "Direction",
    "decode",
    "element_bytes",
    "measure",
    "move_row",
    "row_address",
    "shared_offset",
    "span",
    "stored_size",
]

AXES = 5
PIECE = 16  # bytes that stay together in shared memory: no row has a part of it
RESERVED = 0b1100  # bits of the flags of a tensor map that are 0
IM2COL = 1  # the bit of the flags for the im2col mode
PIXELS = tensor_map.MAX_PIXELS - 1  # the mask of the pixels per column, less 1
SPATIAL_AXES = 3
B4X16, B4X16_P64, B6X16_P32 = 11, 12, 13  # types of 4 and 6 bits
# The bytes of each type, in four bits; of types whose elements have gaps in shared memory 0.
SIZES = sum(kind.bytes << 4 * kind.code for kind in tensor_map.ELEMENT_TYPES if kind.bytes < 16 and not kind.is_tf32)

GATHERED_ROWS = 4
ADDRESS_BITS = 57  # of the tensor's address, as CuTe writes it: addresses that a copy computes wrap around there
NAN = 0x7FF77FF77FF77FF7  # what fills elements outside, whatever their type


class Direction(Code):
    """The direction of a copy."""

    LOAD = 0  # to shared memory, from global memory
    STORE = 1  # the other way
    PEER = 2  # to shared memory, from that of the block itself
    PREFETCH = 3  # nowhere
    CANCEL = 4  # to shared memory, the response to a request to cancel a launch; see launch_control


_NUMBERS = (
    "state",  # 0 where no copy is in flight; see bulk
    "direction",
    "site",
    "cta",  # the records of the block and of the warp that issued it, and which lane
    "warp",
    "lane",
    "group",  # of that thread
    "time",  # after which it was issued, and the trace of its writes; see races
    "access_id",
    "base",  # address of the tensor's first element
    "owner",  # the record of the block whose shared memory it copies to or from, and the offset there
    "offset",
    "targets",  # the blocks of the cluster that it copies to, as bits; 0 where it is only that one
    "barrier",  # the offset in shared memory of the mbarrier that tracks it
    "pair",  # for cta_group::2: 1 if the mbarriers are those of the even blocks, 2 of the odd ones; else 0
    "rank",
    "gathers",  # whether the box has four rows of a matrix, each with a coordinate of its own
    "unrolls",  # whether its rows are pixels (im2col), and whether the instruction has im2col offsets
    "has_offsets",
    "kind",  # of elements, as in a tensor map, and their bytes
    "element",
    "stored",  # bytes in global memory of 16 bytes in shared memory
    "operation",  # of a reduction; see reductions
    "swizzle",  # the bits of an offset, from bit 7 on, that change others
    "atom",  # 1 if pieces of 32 bytes stay together, else 0
    "filler",  # eight bytes of elements outside
    "rounds",  # whether a load rounds elements to tf32
    "rows",
    "width",  # of a row, in bytes, and from one row to the next in shared memory
    "pitch",
    "total",  # bytes of the box
    "first",  # the first of a row's elements that lies inside, and the one behind the last
    "last",
)
# strides in bytes; counts of elements that are copied. Of im2col mode, lower and upper: the first and the last
# coordinate in the bounding box; offsets: those of the instruction, from axis 1 on.
_AXES = ("extents", "strides", "counts", "steps", "start", "lower", "upper", "offsets")

BULK = np.dtype([*((name, "i8") for name in _NUMBERS), *((name, "i8", AXES) for name in _AXES)])
FILLER, EXTENTS, STRIDES, COUNTS, STEPS, START, LOWER, UPPER, OFFSETS = (
    field_offset(BULK, name) for name in ("filler", *_AXES)
)


class BulkRecord(View):
    """A view of BULK: one copy."""

    record = BULK


@native
def element_bytes(kind: int) -> int:
    """Return the bytes of an element of a type in shared memory; 0 for an invalid type."""
    if stored_bytes(kind) < PIECE:
        return PIECE
    return SIZES >> 4 * kind & 15


@native
def stored_bytes(kind: int) -> int:
    """Return the bytes in global memory of 16 bytes in shared memory."""
    if kind == B4X16_P64:
        return 8
    return 12 if kind == B6X16_P32 else PIECE


@native
def packed_shift(kind: int) -> int:
    """Return how many elements of a tensor map count as one, as a power of two."""
    if kind == B4X16:
        return 1
    return 4 if stored_bytes(kind) < PIECE else 0


@native
def decode(copy: BulkRecord, address: int) -> int:
    """Take over the tensor map at an address. Return a CopyRule."""
    flags = load32(address + 8)
    kind = flags >> 7 & 15
    size = element_bytes(kind)
    if flags & RESERVED or size == 0 or load64(address) == 0:
        return CopyRule.NO_MAP
    if (flags >> 4 & 7) + 1 != copy.rank:
        return CopyRule.OTHER_RANK
    if flags & IM2COL != copy.unrolls:
        return CopyRule.IM2COL_MAP if flags & IM2COL else CopyRule.TILED_MAP
    if flags >> 11 & 3:
        return CopyRule.INTERLEAVED
    copy.base = load64(address)
    copy.kind = kind
    copy.element = size
    copy.swizzle = (1 << (flags >> 13 & 3)) - 1
    copy.atom = flags >> 19 & 3
    if copy.atom > 1:
        return CopyRule.SWIZZLE_ATOM
    copy.filler = 0
    copy.rounds = flags >> 16 & 1
    copy.stored = stored_bytes(kind)
    shift = packed_shift(kind)
    if flags >> 15 & 1:
        copy.filler = NAN
    inner_box = load32(address + 52)
    outer = load32(address + 56)
    high = load32(address + 28)
    store64(copy.address + STRIDES, size)
    for axis in range(AXES):
        box = inner_box >> 24
        step = 1
        if axis:
            step = (inner_box >> 3 * axis & 7) + 1
            box = outer >> 8 * (axis - 1) & 255
            stride = load32(address + 8 + 4 * axis) | (high >> 4 * (axis - 1) & 15) << 32
            store64(copy.address + STRIDES + 8 * axis, stride << 4)
        if axis >= copy.rank:
            box = 0
        store64(copy.address + EXTENTS + 8 * axis, load32(address + 32 + 4 * axis) + 1)
        store64(copy.address + STEPS + 8 * axis, step)
        store64(copy.address + COUNTS + 8 * axis, box // step + 1)
    start = load64(copy.address + START)
    if copy.stored < PIECE and start & 127:
        return CopyRule.COORDINATE_128
    inner = load64(copy.address + COUNTS)
    if (inner | start) & (1 << shift) - 1 or (inner >> shift) * size & 15:
        return CopyRule.INNER_16
    inner = inner >> shift
    store64(copy.address + COUNTS, inner)
    store64(copy.address + EXTENTS, load64(copy.address + EXTENTS) >> shift)
    store64(copy.address + START, start >> shift)
    if copy.swizzle and inner * size > copy.swizzle + 1 << 4:
        return CopyRule.INNER_SWIZZLE
    if copy.base & 15:
        return CopyRule.TENSOR_16
    if load64(copy.address + START) * size & 15:
        return CopyRule.COORDINATE_16
    if copy.gathers and load64(copy.address + COUNTS + 8) != 1:
        return CopyRule.GATHER_BOX
    if copy.unrolls:
        copy.rows = (load32(address + 60) & PIXELS) + 1
        rule = decode_corners(copy, outer)
        if rule:
            return rule
    for axis in range(copy.rank):
        if copy.direction == Direction.STORE and load64(copy.address + START + 8 * axis) < 0:
            return CopyRule.COORDINATE_STORE
    return CopyRule.NONE


@native
def decode_corners(copy: BulkRecord, corners: int) -> int:
    """Take over the bounding box of the im2col mode, and move it by the offsets. Return a CopyRule."""
    # The fields have as many bits as tensor_map.corner_bits says.
    bits = 16 // (copy.rank - 2)
    half = 1 << bits - 1
    for axis in range(1, copy.rank - 1):
        shift = bits * (axis - 1)
        lower = ((corners >> shift & 2 * half - 1) ^ half) - half
        upper = ((corners >> 16 + shift & 2 * half - 1) ^ half) - half
        if copy.direction == Direction.STORE and (lower < 0 or upper > 0):
            return CopyRule.STORE_CORNER
        upper += load64(copy.address + EXTENTS + 8 * axis) - 1
        start = load64(copy.address + START + 8 * axis)
        if start < lower or start > upper:
            return CopyRule.COORDINATE_CORNER
        offset = load64(copy.address + OFFSETS + 8 * axis)
        if offset >= 2 * half:
            return CopyRule.OFFSET_RANGE
        store64(copy.address + START + 8 * axis, start + offset)
        store64(copy.address + LOWER + 8 * axis, lower + offset)
        store64(copy.address + UPPER + 8 * axis, upper + offset)
    return CopyRule.NONE


@native
def span(copy: BulkRecord, address: int, size: int, nbytes: int) -> None:
    """Describe a contiguous range as a box of one row, in elements of ``size`` bytes."""
    copy.base = address
    copy.element = size
    copy.gathers = 0
    copy.unrolls = 0
    copy.stored = PIECE
    copy.rank = 1
    copy.swizzle = 0
    copy.atom = 0
    copy.rounds = 0
    store64(copy.address + EXTENTS, nbytes // size)
    store64(copy.address + COUNTS, nbytes // size)
    store64(copy.address + STEPS, 1)
    store64(copy.address + START, 0)


@native
def measure(copy: BulkRecord) -> None:
    """Compute the rows of a box, and which of their elements are inside. The elements of a row are contiguous in
    memory.
    """
    start = load64(copy.address + START)
    extent = load64(copy.address + EXTENTS)
    count = load64(copy.address + COUNTS)
    if not copy.unrolls:
        copy.rows = 1
        for axis in range(1, copy.rank):
            copy.rows *= load64(copy.address + COUNTS + 8 * axis)
    if copy.gathers:
        copy.rows = GATHERED_ROWS
    copy.width = count * copy.element
    copy.pitch = copy.swizzle + 1 << 4 if copy.swizzle else copy.width
    copy.total = copy.rows * stored_size(copy, copy.width)
    copy.first = max(0, 0 - start)
    copy.last = min(count, extent - start)


@native
def stored_size(copy: BulkRecord, size: int) -> int:
    """Return the bytes in global memory of ``size`` bytes in shared memory."""
    # A size may be negative, and // is a division of unsigned numbers here.
    return size * copy.stored >> 4


@native
def row_address(copy: BulkRecord, row: int) -> int:
    """Return the address of a row's first element; 0 for a row that has no element inside the tensor.

    The address wraps around. A ragged tensor relies on that: its sequences are rows of a tensor whose axes span more
    than the address space, or that begins in front of address 0.
    """
    address = copy.base + stored_size(copy, load64(copy.address + START) * copy.element)
    if copy.gathers:
        # The coordinates of the rows follow that of the first element.
        coordinate = load64(copy.address + START + 8 + 8 * row)
        if coordinate < 0 or coordinate >= load64(copy.address + EXTENTS + 8):
            return 0
        address += coordinate * load64(copy.address + STRIDES + 8)
        return address & (1 << ADDRESS_BITS) - 1 if copy.first < copy.last else 0
    remaining = row
    for axis in range(1, copy.rank):
        start = load64(copy.address + START + 8 * axis)
        step = load64(copy.address + STEPS + 8 * axis)
        if copy.unrolls:
            coordinate = start + remaining
            if axis < copy.rank - 1:
                # The line of the first pixel begins at the start, all others at the lower corner.
                lower = load64(copy.address + LOWER + 8 * axis)
                upper = load64(copy.address + UPPER + 8 * axis)
                count = (upper - start) // step + 1
                coordinate = start + remaining * step
                if remaining >= count:
                    remaining -= count
                    count = (upper - lower) // step + 1
                    coordinate = lower + remaining % count * step
                    remaining = remaining // count + 1
                else:
                    remaining = 0
        else:
            count = load64(copy.address + COUNTS + 8 * axis)
            coordinate = start + remaining % count * step
            remaining = remaining // count
        if coordinate < 0 or coordinate >= load64(copy.address + EXTENTS + 8 * axis):
            return 0
        address += coordinate * load64(copy.address + STRIDES + 8 * axis)
    return address & (1 << ADDRESS_BITS) - 1 if copy.first < copy.last else 0


@native
def shared_offset(copy: BulkRecord, row: int, column: int) -> int:
    """Return the offset in shared memory of byte ``column`` of a row, after the swizzle."""
    offset = copy.offset + row * copy.pitch + column
    return offset ^ (offset >> 7 & copy.swizzle >> copy.atom) << 4 + copy.atom


@native
def move_packed(copy: BulkRecord, shared_address: int, global_address: int, is_inside: int) -> None:
    """Copy 16 elements with gaps. Gaps keep what they had."""
    if copy.direction != Direction.STORE:
        if is_inside:
            copy_bytes(shared_address, global_address, copy.stored)
        else:
            fill_bytes(shared_address, 0, copy.stored)
    elif is_inside:
        copy_bytes(global_address, shared_address, copy.stored)


@native
def move_row(copy: BulkRecord, shared_base: int, row: int, address: int) -> None:
    """Copy a row between memory, where it begins at ``address``, and shared memory, which begins at ``shared_base``."""
    size = copy.element
    store = copy.direction == Direction.STORE
    operation = copy.operation
    first = copy.first * size
    last = copy.last * size if address else 0
    is_plain_copy = not operation and (store or not copy.rounds)
    for column in range(0, copy.width, PIECE):
        shared_address = shared_base + shared_offset(copy, row, column)
        if copy.stored < PIECE:
            is_inside = first <= column and column < last
            move_packed(copy, shared_address, address + stored_size(copy, column), is_inside)
        elif first <= column and column + PIECE <= last and is_plain_copy:
            if store:
                copy_bytes(address + column, shared_address, PIECE)
            else:
                copy_bytes(shared_address, address + column, PIECE)
        else:
            for part in range(0, PIECE, size):
                shared_element = shared_address + part
                global_element = address + column + part
                if first <= column + part and column + part < last:
                    if operation:
                        combine(
                            operation,
                            copy.kind,
                            size,
                            global_element if store else shared_element,
                            shared_element if store else global_element,
                        )
                    elif store:
                        copy_bytes(global_element, shared_element, size)
                    elif copy.rounds:
                        # Round to tf32, ties away from zero: 13 of the 23 bits of the fraction are dropped.
                        store32(shared_element, load32(global_element) + 0x1000 & ~0x1FFF)
                    else:
                        copy_bytes(shared_element, global_element, size)
                elif not store:
                    copy_bytes(shared_element, copy.address + FILLER, size)
