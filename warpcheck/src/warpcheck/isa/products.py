"""Multiply for wgmma: a warp's 16 rows of A with the columns of B, 8 columns at a time.

A is converted to numbers once, as columns of 16 rows for each k. So 16 rows of D are a vector, to which the column of A
for each k is added times one number of B; ``sums`` does the addition.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

from llvmlite import ir

from warpcheck.isa.conversion import NARROW, widen_narrow
from warpcheck.isa.matrix import accumulators, count_loop, pack, shuffle, spread
from warpcheck.isa.sums import (
    EXPONENTS,
    ROW_BYTES,
    ROWS,
    add_floats,
    add_integers,
    allocate_numbers,
    store_numbers,
)
from warpcheck.isa.truncation import FRACTION, LEAST_EXPONENT, SIGNIFICAND
from warpcheck.isa.values import F32, Kind, Value, constant, intrinsic, widen
from warpcheck.lower.lane_builder import I1, I8, I32, I64, POINTER, LaneBuilder

__all__ = ["BITS", "factors_from_registers", "factors_from_shared", "products"]

BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8}
# The unit of the layouts in shared memory, 16 bytes: no row or swizzle divides it.
CHUNK = ir.VectorType(I8, 16)
Emit = Callable[..., None]


@cache
def factors_from_registers(kind: str, sign: int) -> Emit:
    """Return an emitter of ``(factors, word, word, word, word)``: word n has row g + 8 (n % 2), and k as in
    ``matrix``.
    """

    def emit(b: LaneBuilder, factors: Value, *words: Value) -> None:
        per_word = 32 // BITS[kind]
        for number, word in enumerate(words):
            for index in range(per_word):
                part = b.resize(b.lshr(word, constant(word, index * BITS[kind])), BITS[kind])
                values = signed(b, numbers(b, part, kind), sign)
                for t in range(4):
                    k = number // 2 * 4 * per_word + t * per_word + index
                    row = shuffle(b, values, [4 * g + t for g in range(8)])
                    store_numbers(b, row, kind, factors, I32(ROW_BYTES * k + 32 * (number % 2)), EXPONENTS)

    return emit


@cache
def factors_from_shared(kind: str, major: int, sign: int) -> Emit:
    """Return an emitter of ``(chunks, factors)``, where ``chunks`` has the addresses of the chunks of 16 rows."""

    def of_rows(b: LaneBuilder, chunks: Value, factors: Value) -> None:
        depth = 256 // BITS[kind]
        rows = allocate_numbers(b, ROWS * depth)
        with count_loop(b, ROWS) as row:
            values = signed(b, numbers(b, load_chunks(b, chunks, b.mul(row, I32(2)), 2, kind), kind), sign)
            b.store(values, b.gep(rows, [b.mul(row, I32(4 * depth))], source_etype=I8), align=4)
        # K-major: the chunks have rows, and sums need columns, so the matrix is transposed through memory.
        steps = ir.Constant(ir.VectorType(I64, ROWS), [4 * depth * row for row in range(ROWS)])
        vector = ir.VectorType(number_type(kind), ROWS)
        with count_loop(b, depth) as k:
            first = b.ptrtoint(b.gep(rows, [b.mul(k, I32(4))], source_etype=I8), I64)
            addresses = b.inttoptr(b.add(spread(b, first, steps.type), steps), ir.VectorType(POINTER, ROWS))
            all_lanes = ir.Constant(ir.VectorType(I1, ROWS), [1] * ROWS)
            zeros = ir.Constant(vector, [0] * ROWS)
            name = f"llvm.masked.gather.v16{'f32' if vector.element == F32 else 'i32'}.v16p0"
            row_of_k = b.intrinsic(name, vector, addresses, I32(4), all_lanes, zeros)
            store_numbers(b, row_of_k, kind, factors, b.mul(k, I32(ROW_BYTES)), EXPONENTS)

    def of_columns(b: LaneBuilder, chunks: Value, factors: Value) -> None:
        # MN-major is for 16-bit types alone, whose k is 16 (PTX ISA, "wgmma.mma_async").
        with count_loop(b, 16) as k:
            values = signed(b, numbers(b, load_chunks(b, chunks, b.mul(k, I32(2)), 2, kind), kind), sign)
            store_numbers(b, values, kind, factors, b.mul(k, I32(ROW_BYTES)), EXPONENTS)

    return of_columns if major else of_rows


@cache
def products(kind: str, major: int, to: str, saturates: bool) -> Emit:
    """Return an emitter of ``(places, warp, factors, chunks, blocks, keeps)``: it adds ``factors`` times B to D, or
    stores it there.

    ``places`` has the slots of D's registers in the warp's record, and ``blocks`` counts 8 columns.
    """
    return partial(_emit_products, kind, major, to, saturates)


def _emit_products(
    kind: str,
    major: int,
    to: str,
    saturates: bool,
    b: LaneBuilder,
    places: Value,
    warp: Value,
    factors: Value,
    chunks: Value,
    blocks: Value,
    keeps: Value,
) -> None:
    depth = 256 // BITS[kind]
    b_numbers = allocate_numbers(b, 2 * 8 * depth)  # B as numbers, and behind them their powers of two
    # Of 8 columns a lane has four numbers: rows g and g + 8, columns 2t and 2t + 1. float16 has two in a register.
    registers = 2 if to == "f16" else 4
    with count_loop(b, blocks) as block:
        # B becomes 8 columns of numbers: adjacent along k if it is K-major, along n if it is MN-major.
        if major:
            along_n = 1
            along_k = 8
            with count_loop(b, depth) as k:
                values = numbers(b, load_chunks(b, chunks, b.add(b.mul(k, blocks), block), 1, kind), kind)
                store_numbers(b, values, kind, b_numbers, b.mul(k, I32(32)), 32 * depth)
        else:
            along_n = depth
            along_k = 1
            with count_loop(b, 8) as n:
                first = b.add(b.mul(block, I32(16)), b.mul(n, I32(2)))
                values = numbers(b, load_chunks(b, chunks, first, 2, kind), kind)
                store_numbers(b, values, kind, b_numbers, b.mul(n, I32(4 * depth)), 32 * depth)
        words = []
        for register in range(registers):
            slot_index = b.add(b.mul(block, I32(registers)), I32(register))
            offset = b.load(b.gep(places, [slot_index], source_etype=I64), typ=I64)
            words.append(b.gep(warp, [offset], source_etype=I8))
        accumulator_values = columns_of(b, accumulators(b, [load_word(b, word) for word in words], Kind(to)))
        # Where scale-d is false, the old value of D does not count (PTX ISA, "wgmma.mma_async").
        zeros = ir.Constant(accumulator_values[0].type, [0] * ROWS)
        accumulator_values = [b.select(keeps, column, zeros) for column in accumulator_values]
        steps = along_n, along_k
        # As measured on an H200: terms are cut 13 or 25 bits below the largest, sums to 14 or 24 bits.
        if kind in LEAST_EXPONENT:
            cut = 13 if BITS[kind] == 8 else FRACTION
            kept_bits = 13 if cut == 13 and to == "f32" else SIGNIFICAND
            sums = add_floats(b, factors, b_numbers, depth, steps, accumulator_values, cut, kept_bits)
        else:
            sums = add_integers(b, factors, b_numbers, depth, steps, [zeros] * 8 if saturates else accumulator_values)
        if saturates:  # the products alone cannot overflow
            sums = [intrinsic(b, "sadd.sat", *pair) for pair in zip(accumulator_values, sums, strict=True)]
        for word, value in zip(words, pack(b, lanes_of(b, sums), Kind(to)), strict=True):
            b.store(value, word, align=64)


def columns_of(b: LaneBuilder, lanes: list[Value]) -> list[Value]:
    """Convert four registers' lanes (row g, row g + 8; columns 2t, 2t + 1) to eight columns of 16 rows."""
    columns = []
    for column in range(8):
        t, parity = divmod(column, 2)
        # Indices from 32 on are those of the second vector, the lower rows.
        order = [4 * g + t for g in range(8)] + [32 + 4 * g + t for g in range(8)]
        columns.append(pick(b, lanes[parity], lanes[2 + parity], order))
    return columns


def lanes_of(b: LaneBuilder, columns: list[Value]) -> list[Value]:
    """Convert eight columns back to four registers' lanes."""
    lanes = []
    for high in range(2):
        for parity in range(2):
            low, upper_columns = (
                pick(b, columns[column], columns[column + 2], list(range(32))) for column in (parity, 4 + parity)
            )
            lanes.append(pick(b, low, upper_columns, [16 * t + 8 * high + g for g in range(8) for t in range(4)]))
    return lanes


def pick(b: LaneBuilder, first: Value, second: Value, order: list[int]) -> Value:
    return b.shuffle_vector(first, second, ir.Constant(ir.VectorType(I32, len(order)), order))


def load_word(b: LaneBuilder, pointer: Value) -> Value:
    return b.load(pointer, typ=ir.VectorType(I32, 32), align=64)


def load_chunks(b: LaneBuilder, chunks: Value, first: Value, count: int, kind: str) -> Value:
    """Load one chunk, or two as one row, as integers of the size of ``kind``."""
    loaded = []
    for number in range(count):
        chunk_pointer = b.gep(chunks, [b.add(first, I32(number))], source_etype=I64)
        loaded.append(b.load(b.inttoptr(b.load(chunk_pointer, typ=I64), POINTER), typ=CHUNK, align=4))
    row = loaded[0] if count == 1 else pick(b, loaded[0], loaded[1], list(range(32)))
    return b.bitcast(row, ir.VectorType(ir.IntType(BITS[kind]), 128 * count // BITS[kind]))


def number_type(kind: str) -> ir.Type:
    return I32 if kind in ("s8", "u8") else F32


def numbers(b: LaneBuilder, bits: Value, kind: str) -> Value:
    """Return elements as float32 or as integers of 32 bits."""
    if kind == "tf32":
        return b.bitcast(b.and_(bits, constant(bits, -1 << 13)), ir.VectorType(F32, bits.type.count))
    if kind in ("f16", "bf16"):
        return widen(b, bits, kind)
    return widen_narrow(b, bits, kind) if kind in NARROW else b.resize(bits, 32, signed=kind == "s8")


def signed(b: LaneBuilder, values: Value, sign: int) -> Value:
    if sign > 0:
        return values
    return b.neg(values) if values.type.element == I32 else b.fneg(values)
