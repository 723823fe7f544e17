"""``wmma``: matrices whose layout in registers is the machine's own. PTX ISA manual, section 9.7.14.3 and following.

Here element number q of a matrix, counted along its rows, is in lane q % 32: register after register, one vector of
lanes for each 32 elements. In memory those vectors are then the matrix, row after row. Real hardware lays fragments out
otherwise, so the sectors and wavefronts of these loads and stores are not those of a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from llvmlite import ir

from kernelpath.simt.isa.collectives import require_lanes
from kernelpath.simt.isa.matrix import array, count_to, element, multiply_add, spread
from kernelpath.simt.isa.memory import space_of
from kernelpath.simt.isa.values import Kind, Value, from_bits, items, to_bits
from kernelpath.simt.layout import LANES, Access
from kernelpath.simt.lower.vectors import I32
from kernelpath.simt.lower.warp import Lowering
from kernelpath.simt.op import Op, live_lanes
from kernelpath.simt.ptx import Instruction

__all__ = ["OPS"]

_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "s8": 8, "u8": 8, "s32": 32}


def emit_wmma(e: Lowering, i: Instruction) -> None:
    require_lanes(e, i)
    {"load": emit_load, "store": emit_store, "mma": emit_mma}[i.modifiers[0]](e, i)


def shape(e: Lowering, i: Instruction) -> tuple[int, int, int]:
    found = re.search(r"\bm(\d+)n(\d+)k(\d+)\b", i.name)
    if found is None:
        raise e.unsupported()
    m, n, k = map(int, found.groups())
    return m, n, k


def places(e: Lowering, i: Instruction, matrix: str, operand: int) -> tuple[list[Value], int]:
    """The address of each element in memory, a vector for each 32, and the bits of an element."""
    bits = _BITS.get(i.modifiers[-1])
    if bits is None:
        raise e.unsupported()
    m, n, k = shape(e, i)
    rows, columns = {"a": (m, k), "b": (k, n)}.get(matrix, (m, n))
    base = e.addresses(i.operands[operand], space_of(i))
    stride = e.resize(e.read(i.operands[2], 32), 64) if len(i.operands) > 2 else None
    along = "row" if "row" in i.modifiers else "col"
    found = []
    for first in range(0, rows * columns, LANES):
        pairs = [divmod(first + lane, columns) for lane in range(LANES)]
        major, minor = ([pair[axis] for pair in pairs] for axis in ((0, 1) if along == "row" else (1, 0)))
        step = stride if stride is not None else e.splat(columns if along == "row" else rows, 64)
        index = e.b.add(e.b.mul(ir.Constant(base.type, major), step), ir.Constant(base.type, minor))
        found.append(e.b.add(base, e.b.mul(index, e.splat(bits // 8, 64))))
    return found, bits


def emit_load(e: Lowering, i: Instruction) -> None:
    """``wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {r}, [address], stride``."""
    addresses, bits = places(e, i, i.modifiers[1], 1)
    space, per_word = space_of(i), 32 // bits
    words = [e.splat(0, 32) for _ in items(i.operands[0])]
    for number, address in enumerate(addresses):
        e.check(address, space, Access.LOAD, bits // 8)
        word, place = divmod(number, per_word)
        value = e.resize(e.gather(address, bits), 32)
        words[word] = e.b.or_(words[word], e.b.shl(value, e.splat(place * bits, 32)))
    for target, value in zip(items(i.operands[0]), words, strict=True):
        e.write(target, value)


def emit_store(e: Lowering, i: Instruction) -> None:
    """``wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [address], {r}, stride``."""
    addresses, bits = places(e, i, "d", 0)
    space, per_word = space_of(i), 32 // bits
    words = [e.read(item, 32) for item in items(i.operands[1])]
    for number, address in enumerate(addresses):
        word, place = divmod(number, per_word)
        value = e.resize(e.b.lshr(words[word], e.splat(place * bits, 32)), bits)
        e.put_row(0, e.resize(value, 64))
        e.check(address, space, Access.STORE, bits // 8)
        e.scatter(address, value)


def emit_mma(e: Lowering, i: Instruction) -> None:
    """``wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {d}, {a}, {b}, {c}``; without types, a and b are f16."""
    m, n, k = shape(e, i)
    types = i.modifiers[i.modifiers.index(f"m{m}n{n}k{k}") + 1 :]
    to, a_type, b_type, c_type = types if len(types) == 4 else (types[0], "f16", "f16", types[1])
    if not {a_type, b_type} <= _BITS.keys():
        raise e.unsupported()
    operands = [[e.read(item, 32) for item in items(operand)] for operand in i.operands[1:4]]
    a, b, c = (
        elements(e, words, kind, count * width // LANES)
        for words, kind, count, width in zip(operands, (a_type, b_type, c_type), (m, k, m), (k, n, n), strict=True)
    )
    sums_type = ir.LiteralStructType([value.type for value in c])

    def product(*vectors: Value) -> Value:
        left, right, sums = vectors[: len(a)], vectors[len(a) : -len(c)], vectors[-len(c) :]
        value = ir.Constant(e.function_result, ir.Undefined)
        for number, total in enumerate(multiply(e, left, right, sums, (m, n, k))):
            value = e.b.insert_value(value, total, number)
        return value

    totals = e.call_own(f"m{m}n{n}k{k}.{c[0].type.element}", sums_type, [*a, *b, *c], product)
    result = [e.b.extract_value(totals, number) for number in range(len(c))]
    words = [e.splat(0, 32) for _ in items(i.operands[0])]
    bits = _BITS[to]
    for number, value in enumerate(result):
        word, place = divmod(number, 32 // bits)
        part = e.resize(to_bits(e, value, Kind(to)), 32)
        words[word] = e.b.or_(words[word], e.b.shl(part, e.splat(place * bits, 32)))
    for target, value in zip(items(i.operands[0]), words, strict=True):
        e.write(target, value)


def elements(e: Lowering, words: list[Value], kind: str, count: int) -> list[Value]:
    """The first ``count`` vectors of elements, as float32 or 32-bit integers."""
    if kind in ("f32", "s32"):
        return [from_bits(e, word, Kind(kind)) for word in words[:count]]
    per_word = 32 // _BITS[kind]
    return [element(e, words[number // per_word], number % per_word, kind) for number in range(count)]


def multiply(
    e: Lowering, a: Sequence[Value], b: Sequence[Value], c: Sequence[Value], size: tuple[int, int, int]
) -> list[Value]:
    """Row after row of the result: the sum over k of one element of a times a row of b."""
    m, n, k = size
    kind = c[0].type.element
    left, right, result = array(e, a), array(e, b), array(e, c)
    row = ir.VectorType(kind, n)
    with count_to(e, m) as i:
        place = e.b.gep(result, [e.b.mul(i, I32(n))], source_etype=kind)
        mine = e.b.gep(left, [e.b.mul(i, I32(k))], source_etype=kind)
        total = e.b.load(place, typ=row, align=4)
        for inner in range(k):
            number = e.b.load(e.b.gep(mine, [I32(inner)], source_etype=kind), typ=kind)
            other = e.b.load(e.b.gep(right, [I32(inner * n)], source_etype=kind), typ=row, align=4)
            total = multiply_add(e, spread(e, number, row), other, total)
        e.b.store(total, place, align=4)
    vector = c[0].type
    return [
        e.b.load(e.b.gep(result, [I32(number)], source_etype=vector), typ=vector, align=4) for number in range(len(c))
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
