"""Multiply for tcgen05.mma: machine code that executes one product of the tensor core's queue.

``runtime.tensor_jobs`` has copied the operands to images of 32 bytes for each row of A and each column of B: numbers of
4 and 6 bits have a byte each, but for the kinds mxf4 and mxf4nvf4, whose images have two in a byte. They become numbers
here, 16 rows of A side by side for each k, 8 columns of B together; ``sums`` adds, as for wgmma. Tensor memory is
stored column after column, so 16 rows of a column of D are a vector in it. Scale factors become numbers as well, 16
rows of A or columns of B side by side for each of four blocks.

The order and the rounding of these sums are assumptions: those measured on an H200 for operands of 16 bits and tf32,
and for narrower floats, unlike on an H200, the same (see docs/blackwell.md and ``truncation``). An element of D of 16
bits has a cell of 32 bits of its own, as in CUTLASS (mma_traits_sm100_frag.hpp).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial

from llvmlite import ir

from warpcheck.isa.conversion import widen_narrow, widen_scale
from warpcheck.isa.matrix import count_loop, shuffle, spread
from warpcheck.isa.products import numbers, signed
from warpcheck.isa.sums import EXPONENTS, ROW_BYTES, ROWS, add_floats, add_integers, add_scaled_blocks
from warpcheck.isa.truncation import FRACTION, LEAST_EXPONENT, SIGNIFICAND, powers, to_float64
from warpcheck.isa.values import F32, Kind, Value, constant, from_bits, to_bits
from warpcheck.lower.lane_builder import I1, I8, I32, I64, POINTER, LaneBuilder
from warpcheck.native.language import field_of
from warpcheck.runtime.tensor_cells import COLUMN_BYTES
from warpcheck.runtime.tensor_operands import DEPTH_BYTES
from warpcheck.runtime.tensor_records import TensorJobRecord
from warpcheck.runtime.tensor_scales import BLOCKS

__all__ = ["FORMATS", "multiplier"]

# The types of A and B of each kind, by their codes in the instruction descriptor (PTX ISA manual, 9.7.16.4.2).
FORMATS: Mapping[str, Mapping[int, str]] = {
    "f16": {0: "f16", 1: "bf16"},
    "tf32": {2: "tf32"},
    "f8f6f4": {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"},
    "i8": {0: "u8", 1: "s8"},
    "mxf8f6f4": {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"},
    "mxf4": {1: "e2m1"},
    "mxf4nvf4": {1: "e2m1"},
}

# The numbers of a row along k, where they are not 32.
DEPTHS = {"f16": 16, "tf32": 8, "mxf4": 64, "mxf4nvf4": 64}

BLOCK = 8  # columns that are added together
A_BLOCK_BYTES = 2 * EXPONENTS  # 16 rows of A as numbers, and their powers of two
A_BYTES = 8 * A_BLOCK_BYTES
B_SCALES = 128 // ROWS * BLOCKS  # vectors of scale factors of A, in front of those of B
SCALE_POWERS = (128 + 256) // ROWS * BLOCKS * ROW_BYTES  # from scale factors to their powers of two
EVERY_CELL = ir.VectorType(I32, ROWS)


@cache
def multiplier(kind: str) -> Callable[..., Value]:
    """Return the emitter of a function of the address of a job, for products of a kind."""
    return partial(_emit_multiply, kind)


def _emit_multiply(kind: str, b: LaneBuilder, address: Value) -> Value:
    job = b.inttoptr(address, POINTER)
    a_numbers = b.inttoptr(_field(b, job, "numbers"), POINTER)
    b_numbers = b.at(a_numbers, A_BYTES)
    m, n = (b.trunc(_field(b, job, name), I32) for name in ("m", "n"))
    negates = _field(b, job, "negates")
    for which, rows in enumerate((m, n)):
        _convert(b, job, kind, "ab"[which], rows, [a_numbers, b_numbers][which], _bit(b, negates, which))
        if kind.startswith("mx"):
            _convert_scales(b, job, "ab"[which], rows)
    with count_loop(b, b.lshr(m, I32(4))) as row_block, count_loop(b, b.lshr(n, I32(3))) as column_block:
        _add_block(b, job, kind, row_block, column_block, a_numbers, b_numbers)
    return I64(0)


def _convert(b: LaneBuilder, job: Value, kind: str, which: str, rows: Value, target: Value, negated: Value) -> None:
    """Convert an image to numbers, by the type that the job names."""
    image = b.inttoptr(_field(b, job, f"{which}_image"), POINTER)
    code = _field(b, job, f"{which}_kind")
    for number, name in FORMATS[kind].items():
        with b.if_then(b.icmp_unsigned("==", code, I64(number))), count_loop(b, rows) as row:
            source = b.gep(image, [b.mul(row, I32(DEPTH_BYTES))], source_etype=I8)
            _convert_row(b, name, DEPTHS.get(kind, 32), which, row, source, target, negated)


def _convert_row(
    b: LaneBuilder, name: str, depth: int, which: str, row: Value, source: Value, target: Value, negated: Value
) -> None:
    """Convert a row of 32 bytes: store its numbers, and behind them their powers of two, if their sums need these."""
    if depth == 64:
        # The first of two numbers is in the lower half of their byte.
        pairs = b.load(source, typ=ir.VectorType(I8, DEPTH_BYTES), align=4)
        bits = b.bitcast(pairs, ir.VectorType(ir.IntType(4), depth))
    else:
        bits = b.load(source, typ=ir.VectorType(ir.IntType(8 * DEPTH_BYTES // depth), depth), align=4)
    values = numbers(b, bits, name)
    values = b.select(negated, signed(b, values, -1), values)
    planes = [values]
    if name in LEAST_EXPONENT and depth < 64:
        planes.append(powers(b, values, LEAST_EXPONENT[name]))
    for plane, vector in enumerate(planes):
        if which == "a":
            # Row r of a block is number r of a vector for each k.
            block = b.add(b.mul(b.lshr(row, I32(4)), I32(A_BLOCK_BYTES)), b.mul(b.and_(row, I32(15)), I32(4)))
            for k in range(depth):
                offset = b.add(block, I32(plane * EXPONENTS + k * ROW_BYTES))
                b.store(b.extract_element(vector, I32(k)), b.gep(target, [offset], source_etype=I8))
        else:
            # A block of 8 columns, adjacent along k, and its powers of two.
            block = b.mul(b.lshr(row, I32(3)), I32(_block_bytes(depth)))
            within = b.mul(b.and_(row, I32(7)), I32(4 * depth))
            offset = b.add(b.add(block, within), I32(plane * 4 * BLOCK * depth))
            b.store(vector, b.gep(target, [offset], source_etype=I8), align=4)


def _block_bytes(depth: int) -> int:
    """Return the bytes of 8 columns of B as numbers, with their powers of two where the sums need these."""
    planes = 1 if depth == 64 else 2
    return planes * 4 * BLOCK * depth


def _convert_scales(b: LaneBuilder, job: Value, which: str, rows: Value) -> None:
    """Convert the codes of the scale factors of A or B to numbers: for 16 rows, a vector for each block."""
    codes = b.inttoptr(_field(b, job, f"{which}_codes"), POINTER)
    with count_loop(b, b.lshr(b.add(rows, I32(ROWS - 1)), I32(4))) as row_block:
        first = b.gep(codes, [b.mul(row_block, I32(ROWS * BLOCKS))], source_etype=I8)
        together = b.load(first, typ=ir.VectorType(I8, ROWS * BLOCKS), align=4)
        for block in range(BLOCKS):
            part = shuffle(b, together, [BLOCKS * row + block for row in range(ROWS)])
            is_power = b.icmp_unsigned("==", _field(b, job, "scale_kind"), I64(1))
            # A ue4m3 is an e4m3 whose sign is ignored.
            unsigned = widen_narrow(b, b.and_(part, constant(part, 0x7F)), "e4m3")
            target = _scale_vector(b, job, which, row_block, block)
            factors = b.select(is_power, widen_scale(b, part), unsigned)
            b.store(factors, target, align=4)
            least = [powers(b, factors, LEAST_EXPONENT[name]) for name in ("ue8m0", "ue4m3")]
            b.store(b.select(is_power, *least), b.at(target, SCALE_POWERS), align=4)


def _scale_vector(b: LaneBuilder, job: Value, which: str, row_block: Value, block: int) -> Value:
    """Return where the scale factors of a block are, of 16 rows of A or 16 columns of B."""
    table = b.inttoptr(_field(b, job, "factors"), POINTER)
    index = b.add(b.mul(row_block, I32(BLOCKS)), I32(block + (0 if which == "a" else B_SCALES)))
    return b.gep(table, [index], source_etype=ir.VectorType(F32, ROWS))


def _scale_factors(
    b: LaneBuilder, job: Value, row_block: Value, column_block: Value, n: Value, block: int
) -> tuple[Value, Value]:
    """Return the scale factors of a block, 16 rows of A with column ``n`` of B; see ``sums.ScaleFactors``."""
    of_rows = _scale_vector(b, job, "a", row_block, block)
    column = b.add(b.mul(column_block, I32(BLOCK)), n)
    of_columns = _scale_vector(b, job, "b", b.lshr(column, I32(4)), block)
    both = []
    for offset, element in ((0, F32), (SCALE_POWERS, I32)):
        vector = ir.VectorType(element, ROWS)
        number = b.load(b.gep(b.at(of_columns, offset), [b.and_(column, I32(15))], source_etype=element), typ=element)
        both.append((b.load(b.at(of_rows, offset), typ=vector, align=4), spread(b, number, vector)))
    return b.fmul(*(to_float64(b, scale) for scale in both[0])), b.add(*both[1])


def _add_block(
    b: LaneBuilder,
    job: Value,
    kind: str,
    row_block: Value,
    column_block: Value,
    a_numbers: Value,
    b_numbers: Value,
) -> None:
    """Add 16 rows of A times 8 columns of B to D."""
    depth = DEPTHS.get(kind, 32)
    factors = b.gep(a_numbers, [b.mul(row_block, I32(A_BLOCK_BYTES))], source_etype=I8)
    columns = b.gep(b_numbers, [b.mul(column_block, I32(_block_bytes(depth)))], source_etype=I8)
    lane = b.mul(b.zext(row_block, I64), _field(b, job, "lane_step"))
    lane = b.add(lane, _field(b, job, "tensor_lane"))
    column = b.add(_field(b, job, "column"), b.zext(b.mul(column_block, I32(BLOCK)), I64))
    offset = b.add(b.mul(column, I64(COLUMN_BYTES)), b.mul(lane, I64(4)))
    first = b.inttoptr(b.add(_field(b, job, "memory"), offset), POINTER)
    cells = [b.at(first, COLUMN_BYTES * number) for number in range(BLOCK)]
    is_half = b.icmp_unsigned("==", _field(b, job, "d_kind"), I64(0))
    old = [b.load(cell, typ=EVERY_CELL, align=64) for cell in cells]
    values = _accumulators(b, job, kind, old, is_half)
    if kind == "i8":
        sums = add_integers(b, factors, columns, depth, (depth, 1), values)
    elif depth == 64:
        sums = add_scaled_blocks(
            b, factors, columns, depth, values, partial(_scale_factors, b, job, row_block, column_block)
        )
    else:
        scale_factors = partial(_scale_factors, b, job, row_block, column_block) if kind.startswith("mx") else None
        sums = add_floats(b, factors, columns, depth, (depth, 1), values, FRACTION, SIGNIFICAND, scale_factors)
    enabled = b.not_(_disabled_lanes(b, job, lane))
    for cell, before, value in zip(cells, old, sums, strict=True):
        bits = value
        if kind != "i8":
            halves = b.resize(to_bits(b, value, Kind("f16")), 32)
            bits = b.select(is_half, halves, to_bits(b, value, Kind("f32")))
        b.store(b.select(enabled, bits, before), cell, align=64)


def _accumulators(b: LaneBuilder, job: Value, kind: str, cells: list[Value], is_half: Value) -> list[Value]:
    """Return D as numbers, times 2**-scale; zeros where the product does not add to it."""
    keeps = _bit(b, _field(b, job, "accumulates"), 0)
    if kind == "i8":
        return [b.select(keeps, cell, constant(cell, 0)) for cell in cells]
    # 127 is the bias of float32: the bits of 2**-scale.
    exponent = b.shl(b.sub(I32(127), b.trunc(_field(b, job, "scale"), I32)), I32(23))
    scale = b.bitcast(exponent, F32)
    values = []
    for cell in cells:
        half = from_bits(b, b.resize(cell, 16), Kind("f16"))
        value = b.select(is_half, half, from_bits(b, cell, Kind("f32")))
        factor = b.shuffle_vector(
            b.insert_element(ir.Constant(value.type, ir.Undefined), scale, I32(0)),
            ir.Constant(value.type, ir.Undefined),
            ir.Constant(EVERY_CELL, [0] * ROWS),
        )
        values.append(b.select(keeps, b.fmul(value, factor), constant(value, 0.0)))
    return values


def _disabled_lanes(b: LaneBuilder, job: Value, lane: Value) -> Value:
    """Return which of 16 lanes are not written: a bit of disable-output-lane for each lane of tensor memory."""
    is_upper = b.icmp_unsigned(">=", lane, I64(64))
    word = b.select(is_upper, _field(b, job, "disabled_high"), _field(b, job, "disabled_low"))
    bits = b.trunc(b.lshr(word, b.and_(lane, I64(63))), ir.IntType(ROWS))
    return b.bitcast(bits, ir.VectorType(I1, ROWS))


def _field(b: LaneBuilder, job: Value, name: str) -> Value:
    return b.load(b.at(job, field_of(TensorJobRecord, name)[1]), typ=I64)


def _bit(b: LaneBuilder, word: Value, number: int) -> Value:
    return b.trunc(b.lshr(word, I64(number)), I1)
