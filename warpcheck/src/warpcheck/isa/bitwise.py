"""Emit logic, shifts, bit fields and permutations of bytes. PTX ISA manual, sections 9.7.1 and 9.7.8."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from warpcheck.isa.values import Kind, Value, constant, intrinsic, items, lanewise, suffix
from warpcheck.lower.instruction_emitter import InstructionEmitter
from warpcheck.lower.lane_builder import LaneBuilder
from warpcheck.op import Op
from warpcheck.ptx import Instruction

__all__ = ["OPS", "and_", "or_", "shift", "xor"]


def and_(e: InstructionEmitter, t: Kind, x: Value, y: Value) -> Value:
    return e.b.and_(x, y)


def or_(e: InstructionEmitter, t: Kind, x: Value, y: Value) -> Value:
    return e.b.or_(x, y)


def xor(e: InstructionEmitter, t: Kind, x: Value, y: Value) -> Value:
    return e.b.xor(x, y)


def not_(e: InstructionEmitter, t: Kind, x: Value) -> Value:
    return e.b.not_(x)


def cnot(e: InstructionEmitter, t: Kind, x: Value) -> Value:
    return e.b.zext(e.b.icmp_unsigned("==", x, constant(x, 0)), x.type)


def popc(e: InstructionEmitter, t: Kind, x: Value) -> Value:
    return intrinsic(e.b, "ctpop", x)


def clz(e: InstructionEmitter, t: Kind, x: Value) -> Value:
    # LLVM's flag is_zero_poison: PTX defines clz of 0, as the number of bits.
    keep_zero = ir.Constant(ir.IntType(1), 0)
    return e.b.intrinsic(f"llvm.ctlz.{suffix(x)}", x.type, x, keep_zero)


def brev(e: InstructionEmitter, t: Kind, x: Value) -> Value:
    return intrinsic(e.b, "bitreverse", x)


def bfind(e: InstructionEmitter, t: Kind, x: Value) -> Value:
    """Return the position of the highest set bit, or of the highest that differs from the sign; all ones if there is
    none.
    """
    # The highest bit that differs from the sign of a negative number is the highest one of its complement.
    if t.is_signed:
        x = e.b.select(e.b.icmp_signed("<", x, constant(x, 0)), e.b.not_(x), x)
    zeros = clz(e, t, x)
    position = zeros if "shiftamt" in e.instruction.modifiers else e.b.sub(constant(x, t.bits - 1), zeros)
    return e.b.select(e.b.icmp_unsigned("==", x, constant(x, 0)), constant(x, -1), position)


def fns(e: InstructionEmitter, t: Kind, mask: Value, base: Value, offset: Value) -> Value:
    """Return the position of the n-th set bit from ``base`` on, up or down by the sign of ``offset``; all ones if
    there is none.

    An offset of 0 tests the bit at ``base``. PTX leaves a base above 31 undefined; here, no bit is found.
    """
    b = e.b
    zero = constant(mask, 0)
    is_downward = b.icmp_signed("<", offset, zero)
    count = b.select(is_downward, b.sub(zero, offset), offset)
    # Downward is upward in the reversed mask.
    bits = b.select(is_downward, brev(e, t, mask), mask)
    start = b.select(is_downward, b.sub(constant(base, 31), base), base)
    # A base above 31 is above 31 in the reversed mask, too, because 31 - base wraps around.
    bits = b.and_(bits, shift(b, b.shl, constant(mask, -1), start, zero))
    single_bit = shift(b, b.shl, constant(mask, 1), start, zero)
    bits = b.select(b.icmp_unsigned("==", offset, zero), b.and_(bits, single_bit), bits)
    # Remove the lowest set bit count - 1 times. A word has 32 bits, so 32 removals leave none.
    for removed in range(1, 33):
        without_lowest = b.and_(bits, b.sub(bits, constant(bits, 1)))
        bits = b.select(b.icmp_unsigned(">", count, constant(count, removed)), without_lowest, bits)
    position = b.sub(constant(bits, 31), clz(e, t, b.and_(bits, b.sub(zero, bits))))
    position = b.select(is_downward, b.sub(constant(position, 31), position), position)
    return b.select(b.icmp_unsigned("==", bits, zero), constant(position, -1), position)


def shift(b: LaneBuilder, operation: Callable[[Value, Value], Value], x: Value, amount: Value, limit: Value) -> Value:
    """Shift; amounts of the width or more give ``limit`` (PTX clamps them, LLVM leaves them undefined)."""
    bits = x.type.element.width
    # The amount is 0 where it would be out of range, so that LLVM's shift is defined.
    big = b.icmp_unsigned(">=", amount, constant(amount, bits))
    amount = b.resize(b.select(big, constant(amount, 0), amount), bits)
    return b.select(big, limit, operation(x, amount))


def emit_shift(e: InstructionEmitter, i: Instruction) -> None:
    """Emit shl and shr: the amount has 32 bits for every type."""
    kind = Kind(i.modifiers[-1])
    x = e.read(i.operands[1], kind.bits)
    amount = e.read(i.operands[2], 32)
    zero = constant(x, 0)
    if i.opcode == "shl":
        result = shift(e.b, e.b.shl, x, amount, zero)
    elif kind.is_signed:
        result = shift(e.b, e.b.ashr, x, amount, e.b.ashr(x, constant(x, kind.bits - 1)))
    else:
        result = shift(e.b, e.b.lshr, x, amount, zero)
    e.write(i.operands[0], result, signed=kind.is_signed)


def shf(e: InstructionEmitter, t: Kind, low: Value, high: Value, amount: Value) -> Value:
    """Shift the 64 bits high:low (funnel shift)."""
    wrap = "wrap" in e.instruction.modifiers
    limit = constant(amount, 32)
    clamped = e.b.select(e.b.icmp_unsigned(">", amount, limit), limit, amount)
    amount = e.b.resize(e.b.and_(amount, constant(amount, 31)) if wrap else clamped, 64)
    # 64 bits have room for a shift by the clamped amount, 32.
    pair = e.b.or_(e.b.shl(e.b.resize(high, 64), constant(amount, 32)), e.b.resize(low, 64))
    if "l" in e.instruction.modifiers:
        return e.b.resize(e.b.lshr(e.b.shl(pair, amount), constant(pair, 32)), 32)
    return e.b.resize(e.b.lshr(pair, amount), 32)


def bfe(e: InstructionEmitter, t: Kind, x: Value, position: Value, length: Value) -> Value:
    """Extract a field of ``length`` bits at ``position``; past the top it is filled with the sign or zero."""
    b = e.b
    bits = t.bits
    # PTX ISA, "bfe": position and length are in the low 8 bits of their operands.
    position, length = (e.b.resize(b.and_(e.b.resize(v, 32), e.b.splat(255, 32)), bits) for v in (position, length))
    end = b.add(position, length)
    over = b.icmp_unsigned(">", end, constant(end, bits))
    left_shift = b.select(over, constant(end, 0), b.sub(constant(end, bits), end))
    # Move the field to the top, then down again: what lies above it is lost on the way.
    fill = b.ashr(x, constant(x, bits - 1)) if t.is_signed else constant(x, 0)
    shifted = shift(e.b, b.shl, x, left_shift, constant(x, 0))
    right_shift = b.add(position, left_shift)
    move = b.ashr if t.is_signed else b.lshr
    value = shift(e.b, move, shifted, right_shift, fill)
    return b.select(b.icmp_unsigned("==", length, constant(length, 0)), constant(x, 0), value)


def bfi(e: InstructionEmitter, t: Kind, x: Value, y: Value, position: Value, length: Value) -> Value:
    """Insert the low ``length`` bits of x into y at ``position``."""
    b = e.b
    # As in bfe, 8 bits of each.
    position, length = (e.b.resize(b.and_(e.b.resize(v, 32), e.b.splat(255, 32)), t.bits) for v in (position, length))
    single_bit = constant(x, 1)
    zero = constant(x, 0)
    # A length of the width or more shifts the bit out, and 0 - 1 is all ones.
    ones = b.sub(shift(e.b, b.shl, single_bit, length, zero), single_bit)
    mask = shift(e.b, b.shl, ones, position, zero)
    return b.or_(b.and_(shift(e.b, b.shl, x, position, zero), mask), b.and_(y, b.not_(mask)))


def emit_prmt(e: InstructionEmitter, i: Instruction) -> None:
    """Select four of the eight bytes of y:x; bit 3 of a selector replicates the byte's sign."""
    b = e.b
    mode = i.modifiers[-1]
    x, y, selector = (e.read(source, 32) for source in i.operands[1:4])
    if mode in _PERMUTATIONS:
        choice = b.and_(selector, e.b.splat(3, 32))
        selector = e.b.splat(0, 32)
        for number, permutation in enumerate(_PERMUTATIONS[mode]):
            selector_bits = b.icmp_unsigned("==", choice, e.b.splat(number, 32))
            selector = b.select(selector_bits, e.b.splat(permutation, 32), selector)
    pair = b.or_(b.shl(e.b.resize(y, 64), e.b.splat(32, 64)), e.b.resize(x, 64))
    result = e.b.splat(0, 32)
    for byte in range(4):
        selector_bits = b.lshr(selector, e.b.splat(4 * byte, 32))
        amount = e.b.resize(b.shl(b.and_(selector_bits, e.b.splat(7, 32)), e.b.splat(3, 32)), 64)
        value = e.b.resize(b.lshr(pair, amount), 8)
        # 0xFF or 0: the sign in all eight bits.
        sign = b.ashr(value, e.b.splat(7, 8))
        replicate = b.icmp_unsigned("!=", b.and_(selector_bits, e.b.splat(8, 32)), e.b.splat(0, 32))
        value = e.b.resize(b.select(replicate, sign, value), 32)
        result = b.or_(result, b.shl(value, e.b.splat(8 * byte, 32)))
    e.write(i.operands[0], result)


def bmsk(e: InstructionEmitter, t: Kind, position: Value, length: Value) -> Value:
    """Return a word with ``length`` ones from bit ``position`` on; both are cut to 5 bits, or clamped."""
    if "wrap" in e.instruction.modifiers:
        position, length = (e.b.and_(v, constant(v, 31)) for v in (position, length))
    ones = shift(e.b, e.b.shl, constant(position, -1), position, constant(position, 0))
    above = shift(e.b, e.b.shl, constant(position, -1), length, constant(position, 0))
    return e.b.and_(ones, e.b.not_(shift(e.b, e.b.shl, above, position, constant(position, 0))))


def szext(e: InstructionEmitter, t: Kind, x: Value, length: Value) -> Value:
    """Return the low ``length`` bits of a word, sign- or zero-extended."""
    if "wrap" in e.instruction.modifiers:
        length = e.b.and_(length, constant(length, 31))
    is_empty = e.b.icmp_unsigned("==", length, constant(length, 0))
    is_whole = e.b.or_(is_empty, e.b.icmp_unsigned(">", length, constant(x, 32)))
    # Up and down again by the same amount; a whole word, or an empty field, is not moved.
    left_shift = e.b.select(is_whole, constant(x, 0), e.b.sub(constant(length, 32), length))
    move = e.b.ashr if t.is_signed else e.b.lshr
    return e.b.select(is_empty, constant(x, 0), move(e.b.shl(x, left_shift), left_shift))


def emit_lop3(e: InstructionEmitter, i: Instruction) -> None:
    """Emit a logic function of three words: bit k of the table is its value where the inputs' bits spell k."""
    x, y, z = (e.read(source, 32) for source in i.operands[1:4])
    table = i.operands[4].value  # type: ignore[union-attr]
    result = e.b.splat(0, 32)
    for row in range(8):
        if table >> row & 1:
            term = [v if row >> input_bit & 1 else e.b.not_(v) for v, input_bit in ((x, 2), (y, 1), (z, 0))]
            result = e.b.or_(result, e.b.and_(term[0], e.b.and_(term[1], term[2])))
    target, *predicates = items(i.operands[0])
    if predicates:
        is_nonzero = e.b.icmp_unsigned("!=", result, e.b.splat(0, 32))
        input_predicate = e.read(i.operands[5], 1)
        e.write(predicates[0], (e.b.and_ if "and" in i.modifiers else e.b.or_)(is_nonzero, input_predicate))
    e.write(target, result)


# The selectors for the modes of prmt, by the low two bits of the operand.
_PERMUTATIONS = {
    "f4e": (0x3210, 0x4321, 0x5432, 0x6543),
    "b4e": (0x5670, 0x6701, 0x7012, 0x0123),
    "rc8": (0x0000, 0x1111, 0x2222, 0x3333),
    "ecl": (0x3210, 0x3211, 0x3222, 0x3333),
    "ecr": (0x0000, 0x1110, 0x2210, 0x3210),
    "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
}

OPS = (
    Op("and", ("pred|BITS",), lanewise(and_), passes=True),
    Op("or", ("pred|BITS",), lanewise(or_), passes=True),
    Op("xor", ("pred|BITS",), lanewise(xor), passes=True),
    Op("not", ("pred|BITS",), lanewise(not_)),
    Op("cnot", ("BITS",), lanewise(cnot)),
    Op("shl", ("BITS",), emit_shift),
    Op("shr", ("BITS|INTEGER",), emit_shift),
    Op("shf", ("l|r clamp|wrap b32",), lanewise(shf)),
    Op("popc", ("b32|b64",), lanewise(popc)),
    Op("clz", ("b32|b64",), lanewise(clz)),
    Op("brev", ("b32|b64",), lanewise(brev)),
    Op("bfind", ("shiftamt? WORD",), lanewise(bfind)),
    Op("fns", ("b32",), lanewise(fns)),
    Op("bfe", ("WORD",), lanewise(bfe)),
    Op("bfi", ("b32|b64",), lanewise(bfi)),
    Op("bmsk", ("clamp|wrap b32",), lanewise(bmsk)),
    Op("szext", ("clamp|wrap u32|s32",), lanewise(szext)),
    Op("prmt", ("b32 f4e|b4e|rc8|ecl|ecr|rc16?",), emit_prmt),
    Op("lop3", ("b32", "and|or b32"), emit_lop3),
)
