"""Emit ``wmma``, on matrices with an opaque distribution over registers.

PTX ISA manual, section 9.7.14.3 and following.

Here element number q of a matrix, in row-major order, is in lane q % 32: register after register, one vector of lanes
for each 32 elements. In memory those vectors are then the matrix, row after row. Memory is accessed, and counted, as in
the code that ptxas generates for sm_80 and sm_90: a word of an operand in each lane, two adjacent accumulators.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from llvmlite import ir

from warpcheck.isa.collectives import require_lanes
from warpcheck.isa.matrix import array, count_loop, element, multiply_add, spread
from warpcheck.isa.memory import space_of
from warpcheck.isa.truncation import LEAST_EXPONENT, Term, add_terms, powers
from warpcheck.isa.values import F32, Kind, Value, from_bits, items, to_bits
from warpcheck.layout import LANES, Access
from warpcheck.lower.instruction_emitter import InstructionEmitter
from warpcheck.lower.lane_builder import I32, LaneBuilder
from warpcheck.op import Op, live_lanes
from warpcheck.ptx import Instruction

__all__ = ["OPS"]

_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "s8": 8, "u8": 8, "s32": 32}


def emit_wmma(e: InstructionEmitter, i: Instruction) -> None:
    require_lanes(e, i)
    {"load": emit_load, "store": emit_store, "mma": emit_mma}[i.modifiers[0]](e, i)


def shape(e: InstructionEmitter, i: Instruction) -> tuple[int, int, int]:
    match = re.search(r"\bm(\d+)n(\d+)k(\d+)\b", i.name)
    if match is None:
        raise e.unsupported()
    m, n, k = map(int, match.groups())
    return m, n, k


class Matrix:
    """A matrix in memory, with ``rows``, ``columns``, and the ``bits`` of an element."""

    def __init__(self, e: InstructionEmitter, i: Instruction, which: str, operand: int) -> None:
        bits = _BITS.get(i.modifiers[-1])
        if bits is None:
            raise e.unsupported()
        m, n, k = shape(e, i)
        self.e = e
        self.bits = bits
        self.is_sum = which not in ("a", "b")
        self.rows, self.columns = {"a": (m, k), "b": (k, n)}.get(which, (m, n))
        self.by_row = "row" in i.modifiers
        self.base = e.memory.addresses(i.operands[operand], space_of(i))
        # The stride is optional (PTX ISA, "wmma.load"): without it lines follow each other.
        packed_stride = e.b.splat(self.columns if self.by_row else self.rows, 64)
        self.stride = e.b.resize(e.read(i.operands[2], 32), 64) if len(i.operands) > 2 else packed_stride

    def addresses(self, elements: Sequence[int]) -> Value:
        """Return the addresses of elements by their numbers, one for each lane."""
        e = self.e
        pairs = [divmod(number, self.columns) for number in elements]
        major, minor = ([pair[axis] for pair in pairs] for axis in ((0, 1) if self.by_row else (1, 0)))
        index = e.b.add(e.b.mul(ir.Constant(self.base.type, major), self.stride), ir.Constant(self.base.type, minor))
        return e.b.add(self.base, e.b.mul(index, e.b.splat(self.bits // 8, 64)))

    def requests(self) -> Iterator[list[list[int]]]:
        """Yield the numbers of the elements that each access moves: for each of its parts, those of the lanes.

        Lane 4g + t takes the t-th group of adjacent elements of line g, 8 lines at a time; a line is contiguous in
        memory. Column-major accumulators are accessed one by one: two of row g, in columns 2t and 2t + 1.
        """
        # A line is what is contiguous in memory: a row, or a column of a column-major matrix.
        lines, along = (self.rows, self.columns) if self.by_row else (self.columns, self.rows)
        takes_single = self.is_sum and not self.by_row
        parts = 1 if takes_single else 2 if self.is_sum else min(32 // self.bits, along // 4)
        for line in range(0, lines, 8):
            for start in range(0, along, 8 if takes_single else 4 * parts):
                for column_parity in range(2 if takes_single else 1):
                    yield [
                        [
                            self._number(line + 2 * (lane % 4) + column_parity, start + lane // 4)
                            if takes_single
                            else self._number(line + lane // 4, start + parts * (lane % 4) + part)
                            for lane in range(LANES)
                        ]
                        for part in range(parts)
                    ]

    def _number(self, line: int, position: int) -> int:
        return line * self.columns + position if self.by_row else position * self.columns + line


def emit_load(e: InstructionEmitter, i: Instruction) -> None:
    """Emit ``wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {r}, [address], stride``."""
    matrix = Matrix(e, i, i.modifiers[1], 1)
    # The accesses are checked and counted as the hardware makes them; the values are loaded separately below.
    for parts in matrix.requests():
        e.memory.check(matrix.addresses(parts[0]), space_of(i), Access.LOAD, len(parts) * matrix.bits // 8, len(parts))
    per_word = 32 // matrix.bits
    words = [e.b.splat(0, 32) for _ in items(i.operands[0])]
    for number in range(matrix.rows * matrix.columns // LANES):
        word, index_in_word = divmod(number, per_word)
        elements = range(LANES * number, LANES * (number + 1))
        value = e.b.resize(e.memory.gather(matrix.addresses(elements), matrix.bits), 32)
        words[word] = e.b.or_(words[word], e.b.shl(value, e.b.splat(index_in_word * matrix.bits, 32)))
    for target, value in zip(items(i.operands[0]), words, strict=True):
        e.write(target, value)


def emit_store(e: InstructionEmitter, i: Instruction) -> None:
    """Emit ``wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [address], {r}, stride``."""
    matrix = Matrix(e, i, "d", 0)
    words = [e.read(item, 32) for item in items(i.operands[1])]
    per_word = 32 // matrix.bits
    element_words = [
        e.b.lshr(words[number // per_word], e.b.splat(number % per_word * matrix.bits, 32))
        for number in range(matrix.rows * matrix.columns // LANES)
    ]
    # The elements go through the stack, because the lane that stores an element need not be the one that holds it.
    first = e.b.ptrtoint(array(e.b, element_words), ir.IntType(64))
    start = spread(e.b, first, ir.VectorType(ir.IntType(64), LANES))
    for parts in matrix.requests():
        addresses = [matrix.addresses(part) for part in parts]
        values = [
            e.b.resize(
                e.memory.gather(e.b.add(start, ir.Constant(start.type, [4 * number for number in part])), 32),
                matrix.bits,
            )
            for part in parts
        ]
        for number, value in enumerate(values):
            e.frame.store_row(2 * number, e.b.resize(value, 64))
        e.memory.check(addresses[0], space_of(i), Access.STORE, len(parts) * matrix.bits // 8, len(parts))
        for address, value in zip(addresses, values, strict=True):
            e.memory.scatter(address, value)


def emit_mma(e: InstructionEmitter, i: Instruction) -> None:
    """Emit ``wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {d}, {a}, {b}, {c}``; without types, a and b are f16."""
    m, n, k = shape(e, i)
    types = i.modifiers[i.modifiers.index(f"m{m}n{n}k{k}") + 1 :]
    to, a_type, b_type, c_type = types if len(types) == 4 else (types[0], "f16", "f16", types[1])
    if not {a_type, b_type} <= _BITS.keys():
        raise e.unsupported()
    operands = [[e.read(item, 32) for item in items(operand)] for operand in i.operands[1:4]]
    a, b, c = (
        elements(e.b, words, kind, count * width // LANES)
        for words, kind, count, width in zip(operands, (a_type, b_type, c_type), (m, k, m), (k, n, n), strict=True)
    )
    sums_type = ir.LiteralStructType([value.type for value in c])

    def product(builder: LaneBuilder, *vectors: Value) -> Value:
        a_vectors = vectors[: len(a)]
        b_vectors = vectors[len(a) : -len(c)]
        sums = vectors[-len(c) :]
        value = ir.Constant(sums_type, ir.Undefined)
        for number, total in enumerate(multiply(builder, a_vectors, b_vectors, sums, (m, n, k), a_type)):
            value = builder.insert_value(value, total, number)
        return value

    # A function of its own: the code is large, and a kernel has many products of one shape.
    totals = e.b.call_local(f"m{m}n{n}k{k}.{a_type}.{c[0].type.element}", sums_type, [*a, *b, *c], product)
    result = [e.b.extract_value(totals, number) for number in range(len(c))]
    words = [e.b.splat(0, 32) for _ in items(i.operands[0])]
    bits = _BITS[to]
    for number, value in enumerate(result):
        word, index_in_word = divmod(number, 32 // bits)
        part = e.b.resize(to_bits(e.b, value, Kind(to)), 32)
        words[word] = e.b.or_(words[word], e.b.shl(part, e.b.splat(index_in_word * bits, 32)))
    for target, value in zip(items(i.operands[0]), words, strict=True):
        e.write(target, value)


def elements(b: LaneBuilder, words: list[Value], kind: str, count: int) -> list[Value]:
    """Return the first ``count`` vectors of elements, as float32 or 32-bit integers."""
    if kind in ("f32", "s32"):
        return [from_bits(b, word, Kind(kind)) for word in words[:count]]
    per_word = 32 // _BITS[kind]
    return [element(b, words[number // per_word], number % per_word, kind) for number in range(count)]


def multiply(
    builder: LaneBuilder,
    a: Sequence[Value],
    b: Sequence[Value],
    c: Sequence[Value],
    size: tuple[int, int, int],
    operand_kind: str,
) -> list[Value]:
    """Compute row after row of the result: the sum over k of one element of a times a row of b.

    Floats are added as by mma.sync, to which ptxas compiles wmma: all k at once.
    """
    m, n, k = size
    kind = c[0].type.element
    left_matrix = array(builder, a)
    right_matrix = array(builder, b)
    result = array(builder, c)
    row = ir.VectorType(kind, n)
    power_row = ir.VectorType(I32, n)
    is_float = kind == F32
    left_powers, right_powers = (
        array(builder, [powers(builder, vector, LEAST_EXPONENT[operand_kind]) for vector in vectors])
        if is_float
        else matrix
        for vectors, matrix in ((a, left_matrix), (b, right_matrix))
    )
    with count_loop(builder, m) as i:
        result_row = builder.gep(result, [builder.mul(i, I32(n))], source_etype=kind)
        left_start = builder.mul(i, I32(k))
        total = builder.load(result_row, typ=row, align=4)

        def factors(
            left: Value, right: Value, inner: int, vector: ir.VectorType, start: Value = left_start
        ) -> tuple[Value, Value]:
            left_pointer = builder.gep(left, [builder.add(start, I32(inner))], source_etype=vector.element)
            right_pointer = builder.gep(right, [I32(inner * n)], source_etype=vector.element)
            left_value = builder.load(left_pointer, typ=vector.element)
            return spread(builder, left_value, vector), builder.load(right_pointer, typ=vector, align=4)

        # Tensor cores align all terms of one sum to the largest exponent before they add (isa.truncation), so powers
        # come along.
        if is_float:
            terms = [
                Term(
                    factors(left_matrix, right_matrix, inner, row), factors(left_powers, right_powers, inner, power_row)
                )
                for inner in range(k)
            ]
            total = add_terms(builder, total, terms)
        else:
            for inner in range(k):
                total = multiply_add(builder, *factors(left_matrix, right_matrix, inner, row), total)
        builder.store(total, result_row, align=4)
    vector = c[0].type
    return [
        builder.load(builder.gep(result, [I32(number)], source_etype=vector), typ=vector, align=4)
        for number in range(len(c))
    ]


OPS = (
    Op(
        "wmma",
        (
            "load a|b sync aligned row|col TILE SPACE? f16|bf16|tf32|s8|u8",
            "load c sync aligned row|col TILE SPACE? f16|f32|s32",
            "store d sync aligned row|col TILE SPACE? f16|f32|s32",
            "mma sync aligned row|col row|col TILE f16|f32 f16|f32",
            "mma sync aligned row|col row|col TILE f32 bf16 bf16 f32",
            "mma sync aligned row|col row|col TILE f32 tf32 tf32 f32",
            "mma sync aligned row|col row|col TILE s32 s8 s8 s32",
            "mma sync aligned row|col row|col TILE s32 u8 u8 s32",
        ),
        emit_wmma,
        lanes=live_lanes,
    ),
)
