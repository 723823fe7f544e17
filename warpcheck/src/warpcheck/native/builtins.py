"""Emit LLVM IR of the memory and bit functions of the language."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from llvmlite import ir

from warpcheck.native import language

__all__ = ["BUILTINS", "I1", "I8", "I32", "I64", "pointer"]

I1, I8, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 32, 64))
WORDS = ir.VectorType(I64, 32)
INDICES = ir.VectorType(I32, 32)
Value = Any  # llvmlite's values have no useful types


def pointer(b: ir.IRBuilder, address: Value) -> Value:
    return b.inttoptr(address, ir.PointerType())


def load(kind: ir.IntType, b: ir.IRBuilder, address: Value) -> Value:
    value = b.load(pointer(b, address), typ=kind)
    return b.zext(value, I64) if kind.width < 64 else value


def store(kind: ir.IntType, b: ir.IRBuilder, address: Value, value: Value) -> Value:
    b.store(b.trunc(value, kind) if kind.width < 64 else value, pointer(b, address))
    # Calls are expressions, and every expression has a value.
    return I64(0)


def copy_bytes(b: ir.IRBuilder, target: Value, source: Value, count: Value) -> Value:
    kinds = [ir.PointerType(), ir.PointerType(), I64]
    function = b.module.declare_intrinsic("llvm.memcpy", kinds, ir.FunctionType(ir.VoidType(), [*kinds, I1]))
    b.call(function, [pointer(b, target), pointer(b, source), count, I1(0)])
    return I64(0)


def fill_bytes(b: ir.IRBuilder, target: Value, value: Value, count: Value) -> Value:
    kind = ir.FunctionType(ir.VoidType(), [ir.PointerType(), I8, I64, I1])
    function = b.module.declare_intrinsic("llvm.memset", [ir.PointerType(), I64], kind)
    b.call(function, [pointer(b, target), b.trunc(value, I8), count, I1(0)])
    return I64(0)


def call_code(b: ir.IRBuilder, code: Value, argument: Value) -> Value:
    return b.call(b.inttoptr(code, ir.PointerType(ir.FunctionType(I64, [I64]))), [argument])


def add(kind: Any, bits: ir.IntType, b: ir.IRBuilder, first: Value, second: Value) -> Value:
    """Return the sum of two floats, as bits in the low end of an integer."""
    numbers = [b.bitcast(b.trunc(value, bits) if bits.width < 64 else value, kind) for value in (first, second)]
    sum_bits = b.bitcast(b.fadd(*numbers), bits)
    return b.zext(sum_bits, I64) if bits.width < 64 else sum_bits


def lowest_bit(b: ir.IRBuilder, number: Value) -> Value:
    # Never of 0 (see language), so LLVM may leave that case undefined.
    return b.cttz(number, I1(1))


def count_bits(b: ir.IRBuilder, number: Value) -> Value:
    return b.ctpop(number)


def unlikely(b: ir.IRBuilder, condition: Value) -> Value:
    function = b.module.declare_intrinsic("llvm.expect", [I64], ir.FunctionType(I64, [I64, I64]))
    return b.call(function, [condition, I64(0)])


def run_heads(b: ir.IRBuilder, address: Value, shift: Value) -> Value:
    # Compare each word with the one before it, which a second load takes from memory: moving the words between vector
    # registers takes longer. The word in front of the first one is loaded as well, and makes no difference.
    words = b.load(pointer(b, address), typ=WORDS, align=8)
    before = b.load(pointer(b, b.sub(address, I64(8))), typ=WORDS, align=8)
    differ = b.lshr(b.xor(words, before), _broadcast(b, shift))
    bits = b.bitcast(b.icmp_unsigned("!=", differ, ir.Constant(WORDS, [0] * 32)), I32)
    return b.zext(b.or_(bits, I32(1)), I64)


def offset_bits(b: ir.IRBuilder, address: Value) -> Value:
    words = b.load(pointer(b, address), typ=WORDS, align=8)
    distances = b.sub(words, _shuffle(b, words, [0] * 32))
    reduce = b.module.declare_intrinsic("llvm.vector.reduce.or.v32i64", (), ir.FunctionType(I64, [WORDS]))
    return b.call(reduce, [distances])


def _broadcast(b: ir.IRBuilder, word: Value) -> Value:
    return _shuffle(b, b.insert_element(ir.Constant(WORDS, ir.Undefined), word, I32(0)), [0] * 32)


def _shuffle(b: ir.IRBuilder, words: Value, indices: list[int]) -> Value:
    return b.shuffle_vector(words, ir.Constant(WORDS, ir.Undefined), ir.Constant(INDICES, indices))


BUILTINS: dict[Any, Callable[..., Value]] = {
    language.add_f16: partial(add, ir.HalfType(), ir.IntType(16)),
    language.add_f32: partial(add, ir.FloatType(), I32),
    language.add_f64: partial(add, ir.DoubleType(), I64),
    language.call_code: call_code,
    language.copy_bytes: copy_bytes,
    language.fill_bytes: fill_bytes,
    language.load8: partial(load, I8),
    language.load32: partial(load, I32),
    language.load64: partial(load, I64),
    language.store8: partial(store, I8),
    language.store32: partial(store, I32),
    language.store64: partial(store, I64),
    language.lowest_bit: lowest_bit,
    language.count_bits: count_bits,
    language.offset_bits: offset_bits,
    language.run_heads: run_heads,
    language.unlikely: unlikely,
}
