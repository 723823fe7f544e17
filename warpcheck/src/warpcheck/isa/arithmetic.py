"""Emit integer and float arithmetic. PTX ISA manual, sections 9.7.1 to 9.7.4."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce

from llvmlite import ir

from warpcheck.isa.rounding import add_floats, directed_mode, rounded, to_odd
from warpcheck.isa.values import F64, Kind, Value, constant, intrinsic, lanewise, like, operand, put, saturate
from warpcheck.lower.instruction_emitter import InstructionEmitter
from warpcheck.lower.lane_builder import LaneBuilder
from warpcheck.lower.register_slots import CARRY
from warpcheck.op import Op
from warpcheck.ptx import Instruction

__all__ = ["OPS", "minimum_or_maximum"]


def add(e: InstructionEmitter, t: Kind, x: Value, y: Value) -> Value:
    if t.is_float:
        return rounded(e, partial(add_floats, e), x, y)
    return intrinsic(e.b, "sadd.sat", x, y) if "sat" in e.instruction.modifiers else with_carry(e, x, y)


def sub(e: InstructionEmitter, t: Kind, x: Value, y: Value) -> Value:
    if t.is_float:
        # A negation is exact, so that differences need no directed rounding of their own.
        return rounded(e, partial(add_floats, e), x, e.b.fneg(y))
    return intrinsic(e.b, "ssub.sat", x, y) if "sat" in e.instruction.modifiers else with_borrow(e, x, y)


def addc(e: InstructionEmitter, t: Kind, x: Value, y: Value) -> Value:
    return with_carry(e, x, y, carry(e, t))


def subc(e: InstructionEmitter, t: Kind, x: Value, y: Value) -> Value:
    return with_borrow(e, x, y, e.b.xor(carry(e, t), constant(x, 1)))


def carry(e: InstructionEmitter, t: Kind) -> Value:
    """Return the carry of the last instruction with ``.cc``; after a subtraction 1 if it did not borrow.

    The manual leaves open what an addition makes of a borrow. NVRTC's division of 128 bits relies on this.
    """
    # The carry is followed within a basic block only: PTX ISA, 9.7.2, does not preserve it across calls either.
    if not e.carried:
        raise e.unsupported(f"{e.instruction.name} without .cc before it in its basic block")
    return e.b.resize(e.read(CARRY, 1), t.bits)


def set_carry(e: InstructionEmitter, *overflows: Value, borrows: bool = False) -> None:
    """Keep the carry for the next instruction that takes it, from whether a sum or difference overflowed."""
    if e.instruction.guard is not None:
        raise e.unsupported("predicated " + e.instruction.name)
    wrapped = reduce(e.b.or_, overflows)
    e.write(CARRY, e.b.not_(wrapped) if borrows else wrapped)
    e.carried = True


def with_carry(e: InstructionEmitter, x: Value, y: Value, carry_in: Value | None = None) -> Value:
    """Return the sum; with ``.cc`` its carry is kept."""
    partial = e.b.add(x, y)
    total = partial if carry_in is None else e.b.add(partial, carry_in)
    # A sum that wraps around is less than its operand. At most one of the two additions wraps, so the carry is one bit.
    if "cc" in e.instruction.modifiers:
        set_carry(e, e.b.icmp_unsigned("<", partial, x), e.b.icmp_unsigned("<", total, partial))
    return total


def with_borrow(e: InstructionEmitter, x: Value, y: Value, borrow_in: Value | None = None) -> Value:
    """Return the difference; with ``.cc`` its borrow is kept."""
    partial = e.b.sub(x, y)
    difference = partial if borrow_in is None else e.b.sub(partial, borrow_in)
    if "cc" in e.instruction.modifiers:
        set_carry(e, e.b.icmp_unsigned(">", partial, x), e.b.icmp_unsigned(">", difference, partial), borrows=True)
    return difference


def mul(e: InstructionEmitter, t: Kind, x: Value, y: Value) -> Value:
    if t.is_float:
        return rounded(e, e.b.fmul, x, y)
    # Both halves of the product are in a multiplication of twice the width.
    if "wide" in e.instruction.modifiers or "hi" in e.instruction.modifiers:
        x, y = (e.b.resize(v, 2 * t.bits, t.is_signed) for v in (x, y))
    product = e.b.mul(x, y)
    if "hi" in e.instruction.modifiers:
        return e.b.resize(e.b.lshr(product, constant(product, t.bits)), t.bits)
    return product


def div(e: InstructionEmitter, t: Kind, x: Value, y: Value) -> Value:
    # Division is exact for approx and full, too, for which the manual permits an error of 2 ulp.
    return rounded(e, e.b.fdiv, x, y) if t.is_float else divide(e.b, t, x, y)[0]


def rem(e: InstructionEmitter, t: Kind, x: Value, y: Value) -> Value:
    return divide(e.b, t, x, y)[1]


def divide(b: LaneBuilder, t: Kind, x: Value, y: Value) -> tuple[Value, Value]:
    """Return quotient and remainder. Division by zero gives all ones and x, as on GPUs; the manual leaves it open."""
    zero = b.icmp_unsigned("==", y, constant(y, 0))
    divisor = b.select(zero, constant(y, 1), y)
    if t.is_signed:
        minus_one = b.icmp_unsigned("==", y, constant(y, -1))
        divisor = b.select(minus_one, constant(y, 1), divisor)  # subtle: the least integer over -1 traps on a CPU
        quotient = b.select(minus_one, b.neg(x), b.sdiv(x, divisor))
        remainder = b.srem(x, divisor)
    else:
        quotient = b.udiv(x, divisor)
        remainder = b.urem(x, divisor)
    return b.select(zero, constant(x, -1), quotient), b.select(zero, x, remainder)


def neg(e: InstructionEmitter, t: Kind, x: Value) -> Value:
    return e.b.fneg(x) if t.is_float else e.b.neg(x)


def absolute(e: InstructionEmitter, t: Kind, x: Value) -> Value:
    if t.is_float:
        return intrinsic(e.b, "fabs", x)
    return e.b.select(e.b.icmp_signed("<", x, constant(x, 0)), e.b.neg(x), x)


def minimum_or_maximum(e: InstructionEmitter, t: Kind, x: Value, y: Value, *, op: str = "") -> Value:
    """Return the lesser or the greater operand, for the comparison ``op``, or that of min or max."""
    b = e.b
    op = op or ("<" if e.instruction.opcode == "min" else ">")
    if not t.is_float:
        compare = b.icmp_signed if t.is_signed else b.icmp_unsigned
        return b.select(compare(op, x, y), x, y)
    # Operands of 16 bits are float32 here; see values.
    bits = [b.bitcast(v, like(v, ir.IntType(64 if t.bits == 64 else 32))) for v in (x, y)]
    if "xorsign" in e.instruction.modifiers:  # the extreme of the absolute values, with the sign of the product
        sign = b.bitcast(b.xor(*bits), x.type)
        x, y = (intrinsic(e.b, "fabs", v) for v in (x, y))
        bits = [b.bitcast(v, bits[0].type) for v in (x, y)]
    # Equal numbers differ only where they are zeros: -0 is less than +0.
    equal_result = b.bitcast((b.or_ if op == "<" else b.and_)(*bits), x.type)
    result = b.select(b.fcmp_ordered(op, x, y), x, y)
    result = b.select(b.fcmp_ordered("==", x, y), equal_result, result)
    x_is_nan, y_is_nan = (b.fcmp_unordered("uno", v, v) for v in (x, y))
    # PTX ISA, "min": a NaN is dropped for the other operand, unless .NaN propagates it. LLVM's ordered comparisons are
    # false for NaN.
    if "NaN" in e.instruction.modifiers:
        result = b.select(x_is_nan, x, b.select(y_is_nan, y, result))
    else:
        result = b.select(x_is_nan, y, b.select(y_is_nan, x, result))
    return intrinsic(e.b, "copysign", result, sign) if "xorsign" in e.instruction.modifiers else result


def extreme_of_three(e: InstructionEmitter, t: Kind, x: Value, y: Value, z: Value) -> Value:
    """Return the least or the greatest of three operands, which sm_100 adds for f32."""
    return minimum_or_maximum(e, t, minimum_or_maximum(e, t, x, y), z)


def emit_extreme(e: InstructionEmitter, i: Instruction) -> None:
    has_three_sources = len(i.operands) == 4 and i.modifiers[-1] == "f32" and "xorsign" not in i.modifiers
    lanewise(extreme_of_three if has_three_sources else minimum_or_maximum)(e, i)


def fma(e: InstructionEmitter, t: Kind, x: Value, y: Value, z: Value) -> Value:
    if directed_mode(e):
        return rounded(e, lambda x, y, z: add_floats(e, e.b.fmul(x, y), z), x, y, z)
    # A product of halves is exact in float64; the sum is rounded to odd, so that rounding to 16 bits is correct.
    if t.is_half:
        return to_odd(e.b, intrinsic(e.b, "fma", *(e.b.fpext(v, like(v, F64)) for v in (x, y, z))))
    return intrinsic(e.b, "fma", x, y, z)


def mad(e: InstructionEmitter, t: Kind, x: Value, y: Value, z: Value) -> Value:
    if t.is_float:
        return fma(e, t, x, y, z)
    return with_carry(e, mul(e, t, x, y), z)


def madc(e: InstructionEmitter, t: Kind, x: Value, y: Value, z: Value) -> Value:
    return addc(e, t, mul(e, t, x, y), z)


def mul24(e: InstructionEmitter, t: Kind, x: Value, y: Value) -> Value:
    """Return the product of the low 24 bits of two words: its bits 0 to 31, or with ``.hi`` 16 to 47."""
    # Shift up and down by 8 bits: the low 24 bits, sign- or zero-extended.
    move = e.b.ashr if t.is_signed else e.b.lshr
    x, y = (e.b.resize(move(e.b.shl(v, constant(v, 8)), constant(v, 8)), 64, t.is_signed) for v in (x, y))
    product = e.b.mul(x, y)
    return e.b.resize(e.b.lshr(product, constant(product, 16 * ("hi" in e.instruction.modifiers))), 32)


def mad24(e: InstructionEmitter, t: Kind, x: Value, y: Value, z: Value) -> Value:
    return e.b.add(mul24(e, t, x, y), z)


def sad(e: InstructionEmitter, t: Kind, x: Value, y: Value, z: Value) -> Value:
    # |x - y| without overflow: subtract the lesser from the greater.
    compare = e.b.icmp_signed if t.is_signed else e.b.icmp_unsigned
    return e.b.add(z, e.b.select(compare("<", x, y), e.b.sub(y, x), e.b.sub(x, y)))


def dp4a(e: InstructionEmitter, t: Kind, x: Value, y: Value, z: Value) -> Value:
    signed = [name == "s32" for name in e.instruction.modifiers[-2:]]
    for byte in range(4):
        x_byte, y_byte = (e.b.resize(byte_of(e.b, v, byte), 32, s) for v, s in zip((x, y), signed, strict=True))
        z = e.b.add(z, e.b.mul(x_byte, y_byte))
    return z


def dp2a(e: InstructionEmitter, t: Kind, x: Value, y: Value, z: Value) -> Value:
    """Add the products of the two halves of x with the two lower bytes of y, or with ``.hi`` the two upper ones."""
    signed = [name == "s32" for name in e.instruction.modifiers[-2:]]
    first_byte = 2 * ("hi" in e.instruction.modifiers)
    for half_index in range(2):
        half = e.b.resize(e.b.resize(e.b.lshr(x, constant(x, 16 * half_index)), 16), 32, signed[0])
        z = e.b.add(z, e.b.mul(half, e.b.resize(byte_of(e.b, y, first_byte + half_index), 32, signed[1])))
    return z


def absolute_differences(e: InstructionEmitter, i: Instruction) -> None:
    """Emit vabsdiff2 and vabsdiff4, of the parts of two words; with ``.add`` their sum is added to a third."""
    bits = 32 // int(i.opcode[-1])
    parts = []
    for bit in range(0, 32, bits):
        x, y = (
            e.b.resize(e.b.resize(e.b.lshr(v, constant(v, bit)), bits), 32, kind == "s32")
            for v, kind in zip((e.read(o, 32) for o in i.operands[1:3]), i.modifiers[1:3], strict=True)
        )
        # In 32 bits the difference of two parts cannot overflow.
        parts.append(absolute(e, Kind("s32"), e.b.sub(x, y)))
    addend = e.read(i.operands[3], 32)
    if "add" in i.modifiers:
        e.write(i.operands[0], reduce(e.b.add, parts, addend))
        return
    part_mask = constant(addend, (1 << bits) - 1)
    placed_parts = (e.b.shl(e.b.and_(part, part_mask), constant(part, bits * n)) for n, part in enumerate(parts))
    e.write(i.operands[0], reduce(e.b.or_, placed_parts))


def byte_of(b: LaneBuilder, value: Value, index: int) -> Value:
    return b.resize(b.lshr(value, constant(value, 8 * index)), 8)


def copysign(e: InstructionEmitter, t: Kind, sign: Value, size: Value) -> Value:
    # PTX takes the sign from its first source (PTX ISA, "copysign"), LLVM from its second argument.
    return intrinsic(e.b, "copysign", size, sign)


def with_mixed(rule: Callable[..., Value]) -> Callable[[InstructionEmitter, Instruction], None]:
    """Return the emitter of an instruction that also exists in mixed precision, which sm_100 adds.

    Its result and its last source are f32. The other sources have 16 bits, and are widened exactly.
    """
    in_one_type = lanewise(rule)

    def emit(e: InstructionEmitter, i: Instruction) -> None:
        if "f32" not in i.modifiers[:-1]:
            in_one_type(e, i)
            return
        *narrow_sources, last = i.operands[1:]
        values = [operand(e, source, Kind(i.modifiers[-1])) for source in narrow_sources]
        single = Kind("f32")
        result = rule(e, single, *values, operand(e, last, single))
        put(e, i.operands[0], saturate(e.b, result) if "sat" in i.modifiers else result, single)

    return emit


_FLOATS = ("ROUND? ftz? sat? f32", "ROUND? f64", "rn? ftz? sat? HALF", "rn? BHALF")
_PAIRS = "ROUND? ftz? f32x2"  # since sm_100
_MIXED = "ROUND? sat? f32 f16|bf16"  # since sm_100
_SUM = ("INTEGER", "sat s32", "cc WORD", *_FLOATS)
_SIGN = ("s16|s32|s64", "ftz? f32|HALF", "f64|BHALF")
_EXTREME = (
    *("INTEGER|u16x2|s16x2", "relu s32|s16x2"),
    *("ftz? NaN? f32|HALF", "NaN? BHALF", "f64", "ftz? NaN? xorsign abs f32|HALF", "NaN? xorsign abs BHALF"),
)

OPS = (
    Op("add", ("u16x2|s16x2", *_SUM, _PAIRS, _MIXED), with_mixed(add), passes=True),
    Op("sub", (*_SUM, _PAIRS, _MIXED), with_mixed(sub), passes=True),
    Op("addc", ("cc? WORD",), lanewise(addc)),
    Op("subc", ("cc? WORD",), lanewise(subc)),
    Op("mul", ("lo|hi|wide INTEGER", *_FLOATS, _PAIRS), lanewise(mul), passes=True),
    Op("mad", ("lo|hi|wide INTEGER", "lo|hi cc WORD", "ROUND ftz? sat? f32", "ROUND f64"), lanewise(mad), passes=True),
    Op("madc", ("lo|hi cc? WORD",), lanewise(madc)),
    Op("mul24", ("lo|hi u32|s32",), lanewise(mul24)),
    Op("mad24", ("lo|hi u32|s32",), lanewise(mad24)),
    Op(
        "fma",
        (
            "ROUND ftz? sat? f32",
            "ROUND f64",
            "rn ftz? sat? HALF",
            "rn ftz? relu HALF",
            "rn relu? BHALF",
            "ROUND ftz? f32x2",
            _MIXED,
        ),
        with_mixed(fma),
    ),
    Op("sad", ("INTEGER",), lanewise(sad)),
    Op("dp2a", ("lo|hi u32|s32 u32|s32",), lanewise(dp2a)),
    Op("dp4a", ("u32|s32 u32|s32",), lanewise(dp4a)),
    Op("vabsdiff2", ("u32|s32 u32|s32 u32|s32 add?",), absolute_differences),
    Op("vabsdiff4", ("u32|s32 u32|s32 u32|s32 add?",), absolute_differences),
    Op("div", ("INTEGER", "approx|full|ROUND ftz? f32", "ROUND f64"), lanewise(div)),
    Op("rem", ("INTEGER",), lanewise(rem)),
    Op("neg", _SIGN, lanewise(neg)),
    Op("abs", _SIGN, lanewise(absolute)),
    Op("min", _EXTREME, emit_extreme, passes=True),
    Op("max", _EXTREME, emit_extreme, passes=True),
    Op("copysign", ("FLOAT",), lanewise(copysign)),
)
