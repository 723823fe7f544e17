"""The reductions of bulk and tensor copies. PTX ISA manual, cp.reduce.async.bulk."""

from __future__ import annotations

from warpcheck.layout import Code
from warpcheck.native import add_f16, add_f32, add_f64, load8, native, store8

__all__ = ["ElementKind", "Operation", "combine", "reduces"]

HIGH = -(1 << 63)


class Operation(Code):
    """A reduction."""

    NONE = 0
    ADD = 1
    MIN = 2
    MAX = 3
    INC = 4
    DEC = 5
    AND = 6
    OR = 7
    XOR = 8


class ElementKind(Code):
    """The types of elements, as a tensor map encodes them."""

    U8 = 0
    U16 = 1
    U32 = 2
    S32 = 3
    U64 = 4
    S64 = 5
    F16 = 6
    F32 = 7
    F32_FTZ = 8
    F64 = 9
    BF16 = 10
    TF32 = 11


@native
def reduces(operation: int, kind: int) -> int:
    """Return whether a reduction exists for elements of a type."""
    if kind == ElementKind.F16 or kind == ElementKind.BF16:
        return operation <= Operation.MAX
    if kind >= ElementKind.F16:
        return operation == Operation.ADD
    if kind == ElementKind.S64:
        return operation == Operation.MIN or operation == Operation.MAX
    if operation == Operation.INC or operation == Operation.DEC:
        return kind == ElementKind.U32
    return kind >= ElementKind.U32


@native
def combine(operation: int, kind: int, size: int, target: int, source: int) -> None:
    """Reduce the element at one address with that at another."""
    old, new = element_at(target, size), element_at(source, size)
    if kind == ElementKind.F16 or kind == ElementKind.BF16:
        value = of_halves(operation, kind, old, new)
    elif kind == ElementKind.F64:
        value = add_f64(old, new)
    elif kind >= ElementKind.F32:
        value = canonical(add_f32(old, new), 0x7F800000, 0x7FFFFFFF)
    else:
        value = of_integers(operation, kind, old, new)
    for byte in range(size):
        store8(target + byte, value >> 8 * byte)


@native
def canonical(bits: int, infinity: int, nan: int) -> int:
    """Return a float by its bits, with every NaN replaced by ``nan``, which has all bits but the sign. float64 keeps
    its NaN.
    """
    return nan if bits & nan > infinity else bits


@native
def of_integers(operation: int, kind: int, old: int, new: int) -> int:
    """Reduce integers; those of 32 bits come zero-extended."""
    # The language compares signed 64-bit integers: flipping the sign bit maps other types to that order.
    flipped = HIGH if kind == ElementKind.U64 else 1 << 31 if kind == ElementKind.S32 else 0
    if operation == Operation.ADD:
        return old + new
    if operation == Operation.MIN:
        return old if old ^ flipped < new ^ flipped else new
    if operation == Operation.MAX:
        return old if old ^ flipped > new ^ flipped else new
    if operation == Operation.INC:
        return 0 if old >= new else old + 1
    if operation == Operation.DEC:
        return new if old == 0 or old > new else old - 1
    if operation == Operation.AND:
        return old & new
    if operation == Operation.OR:
        return old | new
    return old ^ new


@native
def of_halves(operation: int, kind: int, old: int, new: int) -> int:
    """Reduce float16 or bfloat16 numbers, by their bits; a number wins against NaN."""
    infinity = 0x7C00 if kind == ElementKind.F16 else 0x7F80
    if operation == Operation.ADD:
        return canonical(add_f16(old, new), infinity, 0x7FFF) if kind == ElementKind.F16 else add_bf16(old, new)
    # PTX ISA, min and max: if one operand is NaN, the result is the other one; if both are, the canonical NaN.
    if old & 0x7FFF > infinity:
        return 0x7FFF if new & 0x7FFF > infinity else new
    if new & 0x7FFF > infinity:
        return old
    less = ordered(old) < ordered(new)
    return old if less == (operation == Operation.MIN) else new


@native
def ordered(bits: int) -> int:
    """Return 16 bits that grow with the float16 or bfloat16 number of these bits."""
    # Floats are sign and magnitude: the bits of negative ones grow downwards.
    return 0x7FFF - (bits & 0x7FFF) if bits & 0x8000 else bits | 0x8000


@native
def add_bf16(old: int, new: int) -> int:
    """Return the sum of two bfloat16 numbers, rounded to nearest even."""
    total = add_f32(old << 16, new << 16)
    if total & 0x7FFFFFFF > 0x7F800000:
        return 0x7FFF
    # Round to nearest, ties to even: add half of the last place, less one if the last bit is even.
    return total + 0x7FFF + (total >> 16 & 1) >> 16


@native
def element_at(address: int, size: int) -> int:
    """Return the bits of an element."""
    value = 0
    for byte in range(size):
        value |= load8(address + byte) << 8 * byte
    return value
