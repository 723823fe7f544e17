"""How a warp multiplies for wgmma: its 16 rows of A with the columns of B, 8 columns at a time.

A becomes numbers once, as rows of 16 for each k. So 16 rows of D are a vector, to which A's row of a k is added times
one number of B; ``sums`` has how.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

from llvmlite import ir

from warpcheck.isa.conversion import widen_eight
from warpcheck.isa.matrix import accumulators, choose, count_to, packed, spread
from warpcheck.isa.sums import EXPONENTS, LEAST, ROW_BYTES, ROWS, add_floats, add_integers, keep, room
from warpcheck.isa.values import F32, Kind, Value, constant, intrinsic, widen
from warpcheck.lower.vectors import I1, I8, I32, I64, POINTER
from warpcheck.lower.warp import Lowering

__all__ = ["BITS", "factors_from_registers", "factors_from_shared", "products"]

BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8}
CHUNK = ir.VectorType(I8, 16)
Emit = Callable[..., None]


@cache
def factors_from_registers(kind: str, sign: int) -> Emit:
    """Emits ``(factors, word, word, word, word)``: word n has row g + 8 (n % 2), and k as in ``matrix``."""

    def emit(e: Lowering, factors: Value, *words: Value) -> None:
        per_word = 32 // BITS[kind]
        for number, word in enumerate(words):
            for place in range(per_word):
                part = e.resize(e.b.lshr(word, constant(word, place * BITS[kind])), BITS[kind])
                values = signed(e, numbers(e, part, kind), sign)
                for t in range(4):
                    k = number // 2 * 4 * per_word + t * per_word + place
                    row = choose(e, values, [4 * g + t for g in range(8)])
                    keep(e, row, kind, factors, I32(ROW_BYTES * k + 32 * (number % 2)), EXPONENTS)

    return emit


@cache
def factors_from_shared(kind: str, major: int, sign: int) -> Emit:
    """Emits ``(chunks, factors)``, where ``chunks`` has the addresses of those of 16 rows."""

    def of_rows(e: Lowering, chunks: Value, factors: Value) -> None:
        depth = 256 // BITS[kind]
        rows = room(e, ROWS * depth)
        with count_to(e, ROWS) as row:
            values = signed(e, numbers(e, load_chunks(e, chunks, e.b.mul(row, I32(2)), 2, kind), kind), sign)
            e.b.store(values, e.b.gep(rows, [e.b.mul(row, I32(4 * depth))], source_etype=I8), align=4)
        steps = ir.Constant(ir.VectorType(I64, ROWS), [4 * depth * row for row in range(ROWS)])
        vector = ir.VectorType(number_type(kind), ROWS)
        with count_to(e, depth) as k:
            first = e.b.ptrtoint(e.b.gep(rows, [e.b.mul(k, I32(4))], source_etype=I8), I64)
            places = e.b.inttoptr(e.b.add(spread(e, first, steps.type), steps), ir.VectorType(POINTER, ROWS))
            every = ir.Constant(ir.VectorType(I1, ROWS), [1] * ROWS)
            none = ir.Constant(vector, [0] * ROWS)
            name = f"llvm.masked.gather.v16{'f32' if vector.element == F32 else 'i32'}.v16p0"
            row_of_k = e.intrinsic(name, vector, places, I32(4), every, none)
            keep(e, row_of_k, kind, factors, e.b.mul(k, I32(ROW_BYTES)), EXPONENTS)

    def of_columns(e: Lowering, chunks: Value, factors: Value) -> None:
        with count_to(e, 16) as k:
            values = signed(e, numbers(e, load_chunks(e, chunks, e.b.mul(k, I32(2)), 2, kind), kind), sign)
            keep(e, values, kind, factors, e.b.mul(k, I32(ROW_BYTES)), EXPONENTS)

    return of_columns if major else of_rows


@cache
def products(kind: str, major: int, to: str, saturates: bool) -> Emit:
    """Emits ``(places, warp, factors, chunks, blocks, keeps)``: what ``factors`` times B adds to D, or puts there.

    ``places`` has those of D's registers in the warp's record, and ``blocks`` counts 8 columns.
    """
    return partial(_emit_products, kind, major, to, saturates)


def _emit_products(
    kind: str,
    major: int,
    to: str,
    saturates: bool,
    e: Lowering,
    places: Value,
    warp: Value,
    factors: Value,
    chunks: Value,
    blocks: Value,
    keeps: Value,
) -> None:
    depth = 256 // BITS[kind]
    space = room(e, 2 * 8 * depth)  # B as numbers, and behind them their powers of two
    registers = 2 if to == "f16" else 4
    with count_to(e, blocks) as block:
        if major:
            along_n = 1
            along_k = 8
            with count_to(e, depth) as k:
                values = numbers(e, load_chunks(e, chunks, e.b.add(e.b.mul(k, blocks), block), 1, kind), kind)
                keep(e, values, kind, space, e.b.mul(k, I32(32)), 32 * depth)
        else:
            along_n = depth
            along_k = 1
            with count_to(e, 8) as n:
                first = e.b.add(e.b.mul(block, I32(16)), e.b.mul(n, I32(2)))
                values = numbers(e, load_chunks(e, chunks, first, 2, kind), kind)
                keep(e, values, kind, space, e.b.mul(n, I32(4 * depth)), 32 * depth)
        words = []
        for register in range(registers):
            place = e.b.add(e.b.mul(block, I32(registers)), I32(register))
            offset = e.b.load(e.b.gep(places, [place], source_etype=I64), typ=I64)
            words.append(e.b.gep(warp, [offset], source_etype=I8))
        given = columns_of(e, accumulators(e, [load_word(e, word) for word in words], Kind(to)))
        nothing = ir.Constant(given[0].type, [0] * ROWS)
        given = [e.b.select(keeps, column, nothing) for column in given]
        steps = along_n, along_k
        if kind in LEAST:
            cut = 13 if BITS[kind] == 8 else 25
            sums = add_floats(e, factors, space, depth, steps, given, cut, 13 if cut == 13 and to == "f32" else 23)
        else:
            sums = add_integers(e, factors, space, depth, steps, [nothing] * 8 if saturates else given)
        if saturates:  # the products alone cannot overflow
            sums = [intrinsic(e, "sadd.sat", *pair) for pair in zip(given, sums, strict=True)]
        for word, value in zip(words, packed(e, lanes_of(e, sums), Kind(to)), strict=True):
            e.b.store(value, word, align=64)


def columns_of(e: Lowering, lanes: list[Value]) -> list[Value]:
    """From four registers' lanes (row g, row g + 8; columns 2t, 2t + 1) to eight columns of 16 rows."""
    columns = []
    for column in range(8):
        t, which = divmod(column, 2)
        order = [4 * g + t for g in range(8)] + [32 + 4 * g + t for g in range(8)]
        columns.append(pick(e, lanes[which], lanes[2 + which], order))
    return columns


def lanes_of(e: Lowering, columns: list[Value]) -> list[Value]:
    """Back from eight columns to four registers' lanes."""
    lanes = []
    for high in range(2):
        for which in range(2):
            low, rest = (pick(e, columns[at], columns[at + 2], list(range(32))) for at in (which, 4 + which))
            lanes.append(pick(e, low, rest, [16 * t + 8 * high + g for g in range(8) for t in range(4)]))
    return lanes


def pick(e: Lowering, first: Value, second: Value, order: list[int]) -> Value:
    return e.b.shuffle_vector(first, second, ir.Constant(ir.VectorType(I32, len(order)), order))


def load_word(e: Lowering, place: Value) -> Value:
    return e.b.load(place, typ=ir.VectorType(I32, 32), align=64)


def load_chunks(e: Lowering, chunks: Value, first: Value, count: int, kind: str) -> Value:
    """One chunk, or two as one row, as integers of the bits of ``kind``."""
    loaded = []
    for number in range(count):
        place = e.b.gep(chunks, [e.b.add(first, I32(number))], source_etype=I64)
        loaded.append(e.b.load(e.b.inttoptr(e.b.load(place, typ=I64), POINTER), typ=CHUNK, align=4))
    row = loaded[0] if count == 1 else pick(e, loaded[0], loaded[1], list(range(32)))
    return e.b.bitcast(row, ir.VectorType(ir.IntType(BITS[kind]), 128 * count // BITS[kind]))


def number_type(kind: str) -> ir.Type:
    return I32 if kind in ("s8", "u8") else F32


def numbers(e: Lowering, bits: Value, kind: str) -> Value:
    """Elements as float32 or as integers of 32 bits."""
    if kind == "tf32":
        return e.b.bitcast(e.b.and_(bits, constant(bits, -1 << 13)), ir.VectorType(F32, bits.type.count))
    if kind in ("f16", "bf16"):
        return widen(e, bits, kind)
    return widen_eight(e, bits, kind) if kind.startswith("e") else e.resize(bits, 32, signed=kind == "s8")


def signed(e: Lowering, values: Value, sign: int) -> Value:
    if sign > 0:
        return values
    return e.b.neg(values) if values.type.element == I32 else e.b.fneg(values)
