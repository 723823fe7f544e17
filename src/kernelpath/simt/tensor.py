"""Matrices held across a warp: ldmatrix, stmatrix, movmatrix and mma. PTX ISA manual, section 9.7.14.

In all of them lane 4g + t belongs to row or column g and holds neighbouring elements number t. A register of e elements
therefore holds, of a row, the elements from t * e on; the next register of that row begins 4e elements later.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from llvmlite import ir

from kernelpath.simt.arithmetic import F32, Kind, Value, constant, from_bits, intrinsic, to_bits
from kernelpath.simt.instructions import items, require_lanes
from kernelpath.simt.layout import LANES, Access, Space
from kernelpath.simt.ptx import Instruction

if TYPE_CHECKING:
    from kernelpath.simt.lower import Emitter

__all__ = ["TENSOR"]

I32 = ir.IntType(32)
_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "s8": 8, "u8": 8, "s4": 4, "u4": 4}


def choose(e: Emitter, value: Value, lanes: list[int]) -> Value:
    """``value`` of the lane that ``lanes`` names for each lane; fixed when compiled."""
    order = ir.Constant(ir.VectorType(I32, LANES), lanes)
    return e.b.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), order)


def row_addresses(e: Emitter, i: Instruction, operand: int, count: int, access: Access) -> Value:
    """The addresses of 8 rows of 16 bytes for each of ``count`` matrices, from the first lanes; checked."""
    addresses = e.addresses(i.operands[operand], Space.SHARED)
    everyone = e.active
    givers = ir.Constant(ir.VectorType(ir.IntType(1), LANES), [lane < 8 * count for lane in range(LANES)])
    e.active = e.b.and_(everyone, givers)
    e.check(addresses, Space.SHARED, access, 16)
    e.active = everyone
    return addresses


def emit_ldmatrix(e: Emitter, i: Instruction) -> None:
    """Each lane takes two neighbouring elements of a row; with ``.trans``, of a column."""
    require_lanes(e, i)
    targets = items(i.operands[0])
    addresses = row_addresses(e, i, 1, len(targets), Access.LOAD)
    for matrix, target in enumerate(targets):
        if "trans" in i.modifiers:
            halves = []
            for which in range(2):
                rows = choose(e, addresses, [8 * matrix + 2 * (lane % 4) + which for lane in range(LANES)])
                halves.append(e.resize(e.gather(at_element(e, rows, [lane // 4 for lane in range(LANES)]), 16), 32))
            value = e.b.or_(halves[0], e.b.shl(halves[1], e.splat(16, 32)))
        else:
            rows = choose(e, addresses, [8 * matrix + lane // 4 for lane in range(LANES)])
            value = e.gather(at_element(e, rows, [2 * (lane % 4) for lane in range(LANES)]), 32)
        e.write(target, value)


def emit_stmatrix(e: Emitter, i: Instruction) -> None:
    require_lanes(e, i)
    sources = items(i.operands[1])
    addresses = row_addresses(e, i, 0, len(sources), Access.STORE)
    for matrix, source in enumerate(sources):
        value = e.read(source, 32)
        if "trans" in i.modifiers:
            for which in range(2):
                rows = choose(e, addresses, [8 * matrix + 2 * (lane % 4) + which for lane in range(LANES)])
                half = e.resize(e.b.lshr(value, e.splat(16 * which, 32)), 16)
                e.scatter(at_element(e, rows, [lane // 4 for lane in range(LANES)]), half)
        else:
            rows = choose(e, addresses, [8 * matrix + lane // 4 for lane in range(LANES)])
            e.scatter(at_element(e, rows, [2 * (lane % 4) for lane in range(LANES)]), value)


def at_element(e: Emitter, rows: Value, elements: list[int]) -> Value:
    """Addresses of 16-bit elements within rows."""
    return e.b.add(rows, ir.Constant(rows.type, [2 * element for element in elements]))


def emit_movmatrix(e: Emitter, i: Instruction) -> None:
    """Transpose an 8 x 8 matrix of 16-bit elements."""
    require_lanes(e, i)
    value = e.read(i.operands[1], 32)
    result = e.splat(0, 32)
    for which in range(2):
        row = [2 * (lane % 4) + which for lane in range(LANES)]
        word = choose(e, value, [4 * row[lane] + lane // 8 for lane in range(LANES)])
        shift = ir.Constant(word.type, [16 * (lane // 4 % 2) for lane in range(LANES)])
        half = e.b.and_(e.b.lshr(word, shift), e.splat(0xFFFF, 32))
        result = e.b.or_(result, e.b.shl(half, e.splat(16 * which, 32)))
    e.write(i.operands[0], result)


def emit_mma(e: Emitter, i: Instruction) -> None:
    """``mma.sync.aligned.m16n8kK.row.col.d.a.b.c {d}, {a}, {b}, {c}``: d = a b + c."""
    require_lanes(e, i)
    shape = next((m for m in i.modifiers if re.fullmatch(r"m16n8k\d+", m)), None)
    to, a_type, b_type, c_type = i.modifiers[-4:]
    if shape is None or a_type not in _BITS or "satfinite" in i.modifiers:
        raise e.unsupported()
    depth = int(shape.split("k")[1])
    a, b = ([e.read(item, 32) for item in items(operand)] for operand in i.operands[1:3])
    sums = accumulators(e, [e.read(item, 32) for item in items(i.operands[3])], Kind(c_type))
    function = mma_function(e, f"{shape}.{a_type}.{b_type}.{c_type}", a_type, b_type, depth, [*a, *b, *sums])
    result = e.b.call(function, [*a, *b, *sums])
    values = [e.b.extract_value(result, number) for number in range(4)]
    for target, value in zip(items(i.operands[0]), packed(e, values, Kind(to)), strict=True):
        e.write(target, value)


def accumulators(e: Emitter, registers: list[Value], kind: Kind) -> list[Value]:
    """The four sums of a lane: row g, then row g + 8, columns 2t and 2t + 1."""
    if kind.name != "f16":
        return [from_bits(e, register, kind) for register in registers]
    return [from_bits(e, half(e, register, which), kind) for register in registers for which in range(2)]


def half(e: Emitter, word: Value, which: int) -> Value:
    return e.resize(e.b.lshr(word, constant(word, 16 * which)), 16)


def packed(e: Emitter, values: list[Value], kind: Kind) -> list[Value]:
    bits = [to_bits(e, value, kind) for value in values]
    if kind.name != "f16":
        return bits
    words = [e.resize(value, 32) for value in bits]
    pairs = zip(words[::2], words[1::2], strict=True)
    return [e.b.or_(low, e.b.shl(high, constant(high, 16))) for low, high in pairs]


def mma_function(e: Emitter, name: str, a_type: str, b_type: str, depth: int, arguments: list[Value]) -> ir.Function:
    """The product as a function of its own: a kernel has many."""
    if name in e.unit.globals:
        return e.unit.globals[name]
    result = ir.LiteralStructType([value.type for value in arguments[-4:]])
    function = ir.Function(e.unit, ir.FunctionType(result, [value.type for value in arguments]), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    outer, e.b = e.b, ir.IRBuilder(function.append_basic_block())
    per_word = 32 // _BITS[a_type]
    words = depth // (4 * per_word)
    a, b, sums = function.args[: 2 * words], function.args[2 * words : 3 * words], list(function.args[3 * words :])
    for k in range(depth):
        word, t, place = k // (4 * per_word), k % (4 * per_word) // per_word, k % per_word
        rows = [element(e, a[2 * word + i], place, a_type) for i in range(2)]
        rows = [choose(e, row, [4 * (lane // 4) + t for lane in range(LANES)]) for row in rows]
        column = element(e, b[word], place, b_type)
        columns = [choose(e, column, [4 * (2 * (lane % 4) + j) + t for lane in range(LANES)]) for j in range(2)]
        for i in range(2):
            for j in range(2):
                sums[2 * i + j] = multiply_add(e, rows[i], columns[j], sums[2 * i + j])
    value: Value = ir.Constant(result, ir.Undefined)
    for number, total in enumerate(sums):
        value = e.b.insert_value(value, total, number)
    e.b.ret(value)
    e.b = outer
    return function


def element(e: Emitter, word: Value, place: int, name: str) -> Value:
    """One of the elements of a register, as float32 or a 32-bit integer."""
    if name == "tf32":
        return e.b.bitcast(e.b.and_(word, constant(word, -1 << 13)), ir.VectorType(F32, LANES))
    bits = _BITS[name]
    part = e.resize(e.b.lshr(word, constant(word, place * bits)), bits)
    return from_bits(e, part, Kind(name)) if "f" in name else e.resize(part, 32, signed=name.startswith("s"))


def multiply_add(e: Emitter, x: Value, y: Value, z: Value) -> Value:
    if x.type.element == F32:
        return intrinsic(e, "fma", x, y, z)
    return e.b.add(e.b.mul(x, y), z)


TENSOR = {
    "ldmatrix": emit_ldmatrix,
    "stmatrix": emit_stmatrix,
    "movmatrix": emit_movmatrix,
    "mma": emit_mma,
}
