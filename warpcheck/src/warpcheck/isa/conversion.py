"""Emit ``cvt`` and ``mov``: conversion of types, packing and unpacking. PTX ISA manual, section 9.7.9."""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from warpcheck.isa.rounding import directed, directed_mode, to_odd
from warpcheck.isa.values import (
    F16,
    F32,
    F64,
    Kind,
    Value,
    constant,
    flush,
    intrinsic,
    like,
    operand,
    put,
    relu,
    saturate,
    scale,
    suffix,
    widen,
)
from warpcheck.layout import LANES
from warpcheck.lower.instruction_emitter import InstructionEmitter
from warpcheck.lower.lane_builder import LaneBuilder
from warpcheck.op import Op
from warpcheck.ptx import Group, Instruction, Operand

__all__ = ["NARROW", "OPS", "interleave", "widen_narrow", "widen_scale"]


@dataclass(frozen=True)
class NarrowFloat:
    """A floating-point type of 4, 6 or 8 bits, the lowest of which are its fraction."""

    bits: int
    fraction: int
    bias: int
    largest: float
    nan: int  # the code that a conversion gives for NaN: the largest number where the type has no NaN


# Types whose conversions have two numbers in a register (PTX ISA manual, "cvt"; cuda_fp4.hpp and cuda_fp6.hpp).
NARROW = {
    "e4m3": NarrowFloat(8, 3, 7, 448.0, 0x7F),
    "e5m2": NarrowFloat(8, 2, 15, 57344.0, 0x7F),
    "e2m3": NarrowFloat(6, 3, 1, 7.5, 0x1F),
    "e3m2": NarrowFloat(6, 2, 3, 28.0, 0x1F),
    "e2m1": NarrowFloat(4, 1, 1, 6.0, 0x7),
}
# At which .satfinite clamps: the largest finite number of each type.
LARGEST = {"f16": 65504.0, "bf16": 2.0**128 - 2.0**120, "tf32": 2.0**128 - 2.0**117}
_INTEGRAL = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


def emit_mov(e: InstructionEmitter, i: Instruction) -> None:
    """Copy, pack ``mov.b32 d, {a, b}`` or unpack ``mov.b32 {a, b}, d``."""
    target, source = i.operands
    bits = Kind(i.modifiers[-1]).bits
    if isinstance(source, Group):
        part = bits // len(source.items)
        word = e.b.splat(0, bits)
        for index, item in enumerate(source.items):
            lanes = e.b.resize(e.read(item, part), bits)
            word = e.b.or_(word, e.b.shl(lanes, e.b.splat(index * part, bits)))
        e.write(target, word)
    elif isinstance(target, Group):
        part = bits // len(target.items)
        word = e.read(source, bits)
        for index, item in enumerate(target.items):
            e.write(item, e.b.resize(e.b.lshr(word, e.b.splat(index * part, bits)), part))
    else:
        e.write(target, e.read(source, bits))


def emit_cvt(e: InstructionEmitter, i: Instruction) -> None:
    """Emit ``cvt.rounding.ftz.sat.to.from d, a``; with a packed target ``d, a, b``, where b is the low half."""
    to = Kind(i.modifiers[-2])
    source = Kind(i.modifiers[-1])
    if i.modifiers[0] == "pack":
        emit_pack(e, i)
        return
    if source.element.name in NARROW or source.name == "ue8m0x2":
        value = read_narrow(e, i.operands[1], source.element.name)
        put(e, i.operands[0], relu(e.b, value) if "relu" in i.modifiers else value, to)
        return
    # PTX ISA, "cvt": of two sources the first is the upper half of the result.
    if to.is_packed and not source.is_packed:
        value = interleave(e.b, operand(e, i.operands[2], source), operand(e, i.operands[1], source))
    else:
        value = operand(e, i.operands[1], source)
    if to.name == "tf32":
        value = round_to_tf32(e, relu(e.b, value) if "relu" in i.modifiers else value)
        e.write(i.operands[0], e.b.bitcast(value, like(value, ir.IntType(32))))
        return
    if "ftz" in i.modifiers and source.name == "f32":
        value = flush(e.b, value, source)
    if to.element.name in NARROW or to.name == "ue8m0x2":
        write_narrow(e, i, value, to.element.name)
        return
    if "satfinite" in i.modifiers and to.name != "f32":
        value = clamp_to_finite(e.b, value, LARGEST[to.element.name])
    put(e, i.operands[0], convert(e, value, to, source), to)


def read_narrow(e: InstructionEmitter, source: Operand, name: str) -> Value:
    """Return a pair of narrow numbers as float32: two lanes for each lane of the warp, the lower one first."""
    bits = 4 if name == "e2m1" else 8
    pairs = e.b.bitcast(e.read(source, 2 * bits), ir.VectorType(ir.IntType(bits), 2 * LANES))
    return widen_scale(e.b, pairs) if name == "ue8m0" else widen_narrow(e.b, pairs, name)


def write_narrow(e: InstructionEmitter, i: Instruction, value: Value, name: str) -> None:
    """Round float32, two for each lane, to a pair of narrow numbers."""
    if name == "ue8m0":
        codes = narrow_scale(e.b, value, "rp" in i.modifiers, "satfinite" in i.modifiers)
    else:
        codes = narrow(e.b, relu(e.b, value) if "relu" in i.modifiers else value, name)
    bits = 4 if name == "e2m1" else 8
    e.write(i.operands[0], e.b.bitcast(e.b.resize(codes, bits), ir.VectorType(ir.IntType(2 * bits), LANES)))


def emit_pack(e: InstructionEmitter, i: Instruction) -> None:
    """Emit ``cvt.pack.sat.to.s32 d, a, b``, or ``cvt.pack.sat.to.s32.b32 d, a, b, c``: a and b, saturated, below c."""
    to = i.modifiers[2]
    bits = int(to[1:])
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if to[0] == "s" else (0, (1 << bits) - 1)
    parts = []
    for source in i.operands[1:3]:
        value = e.read(source, 32)
        value = intrinsic(e.b, "smin", intrinsic(e.b, "smax", value, constant(value, low)), constant(value, high))
        parts.append(e.b.and_(value, constant(value, (1 << bits) - 1)))
    result = e.b.or_(e.b.shl(parts[0], constant(parts[0], bits)), parts[1])
    for upper in i.operands[3:]:
        result = e.b.or_(result, e.b.shl(e.read(upper, 32), constant(result, 2 * bits)))
    e.write(i.operands[0], result)


def convert(e: InstructionEmitter, value: Value, to: Kind, source: Kind) -> Value:
    modifiers = e.instruction.modifiers
    if source.is_float and to.is_float:
        result = float_to_float(e, value, to, source)
    elif source.is_float:
        return float_to_integer(e, value, to, source)
    elif to.is_float:
        result = integer_to_float(e, value, to, source)
    else:
        return integer_to_integer(e, value, to, source)
    if "ftz" in modifiers and to.name == "f32":
        # As in values.lanewise: flush tests the result before it is rounded to a subnormal. A float32 is not rounded
        # here.
        is_double = source.bits == 64 and source.is_float
        larger = float_to_float(e, scale(e.b, value, 64), to, source) if is_double else None
        result = flush(e.b, result, to, larger)
    result = saturate(e.b, result) if "sat" in modifiers else result
    return relu(e.b, result) if "relu" in modifiers else result


def float_to_float(e: InstructionEmitter, value: Value, to: Kind, source: Kind) -> Value:
    modifiers = e.instruction.modifiers
    for rounding, name in _INTEGRAL.items():
        if rounding in modifiers:
            value = intrinsic(e.b, name, value)
    float64_type = like(value, F64)
    mode = directed_mode(e)
    if to.bits == 64:
        return value if source.bits == 64 else e.b.fpext(value, float64_type)
    if to.is_half and mode and not source.is_half:
        return directed_half(e, value, to, mode)
    if source.bits == 64:
        if to.is_half:
            return to_odd(e.b, value)
        return directed(e.b, value, F32, mode) if mode else e.b.fptrunc(value, like(value, F32))
    return value


def directed_half(e: InstructionEmitter, value: Value, to: Kind, mode: str) -> Value:
    """Round a float to 16 bits in a direction, and widen it again: the rounding that follows is then exact."""
    # Rounding to odd never crosses a number of 16 bits, so the direction stays right.
    if value.type.element == F64:
        value = to_odd(e.b, value)
    if to.element.name == "f16":
        return e.b.fpext(directed(e.b, value, F16, mode), value.type)
    if mode != "rz":
        raise e.unsupported()
    # A bfloat16 is the upper half of a float32: to cut is to round toward zero. A NaN, whose cut could be an infinity,
    # stays as it is.
    bits = e.b.bitcast(value, like(value, ir.IntType(32)))
    cut = e.b.bitcast(e.b.and_(bits, constant(bits, -1 << 16)), value.type)
    return e.b.select(e.b.fcmp_unordered("uno", value, value), value, cut)


def round_to_tf32(e: InstructionEmitter, value: Value) -> Value:
    """Round float32 to the 10-bit significand of TF32: to nearest, ties away from zero (rna) or to even (rn)."""
    # 13 of the 23 bits of the fraction go. Half a unit is 0x1000; 0xFFF and the last bit that is kept round ties to
    # even; 0 cuts (rz).
    bits = e.b.bitcast(value, like(value, ir.IntType(32)))
    half = constant(bits, 0x1000 if "rna" in e.instruction.modifiers else 0)
    if "rn" in e.instruction.modifiers:
        last_bit = e.b.and_(e.b.lshr(bits, constant(bits, 13)), constant(bits, 1))
        half = e.b.add(constant(bits, 0xFFF), last_bit)
    truncated = e.b.and_(e.b.add(bits, half), constant(bits, -1 << 13))
    finite = e.b.fcmp_ordered("<", intrinsic(e.b, "fabs", value), constant(value, float("inf")))
    modifiers = e.instruction.modifiers
    if "rna" in modifiers:  # as an H200 does it, which cuts NaN as if it were a number
        not_finite = e.b.and_(bits, constant(bits, -1 << 13))
        not_finite = e.b.sub(not_finite, constant(bits, 1 << 13)) if "satfinite" in modifiers else not_finite
    else:
        is_nan = e.b.fcmp_unordered("uno", value, value)
        not_finite = e.b.select(is_nan, constant(bits, 0x7FFFE000), bits)
    rounded = e.b.bitcast(e.b.select(finite, truncated, not_finite), value.type)
    return clamp_to_finite(e.b, rounded, LARGEST["tf32"]) if "satfinite" in modifiers else rounded


def clamp_to_finite(b: LaneBuilder, value: Value, largest: float) -> Value:
    """Replace numbers beyond the largest one by it; NaN stays (``.satfinite``)."""
    size = intrinsic(b, "fabs", value)
    exceeds = b.fcmp_ordered(">", size, constant(value, largest))
    return b.select(exceeds, intrinsic(b, "copysign", constant(value, largest), value), value)


def float_to_integer(e: InstructionEmitter, value: Value, to: Kind, source: Kind) -> Value:
    """Round, then clamp to the range of the integer."""
    for rounding, name in _INTEGRAL.items():
        if rounding in e.instruction.modifiers:
            value = intrinsic(e.b, name, value)
    # LLVM's saturating conversions clamp as PTX does; they turn NaN into 0.
    signed = "s" if to.is_signed else "u"
    target = like(value, ir.IntType(to.bits))
    name = f"llvm.fpto{signed}i.sat.v{value.type.count}i{to.bits}.{suffix(value)}"
    result = e.b.intrinsic(name, target, value)
    if to.bits == 64 or source.bits == 64:  # subtle: NaN becomes 2^(bits-1) where either side has 64 bits, else 0
        nan = e.b.fcmp_unordered("uno", value, value)
        result = e.b.select(nan, constant(result, 1 << (to.bits - 1)), result)
    return result


def integer_to_float(e: InstructionEmitter, value: Value, to: Kind, source: Kind) -> Value:
    cast = e.b.sitofp if source.is_signed else e.b.uitofp
    mode = directed_mode(e)
    # Every integer of 32 bits is exact in float64.
    if to.bits == 64 and (mode is None or source.bits <= 32):
        return cast(value, like(value, F64))
    if to.bits == 64 or (mode and source.bits == 64):
        raise e.unsupported()
    if not to.is_half and not mode:
        return cast(value, like(value, F32))
    exact = cast(exact_in_float64(e.b, value, source), like(value, F64))
    if mode:
        return directed_half(e, exact, to, mode) if to.is_half else directed(e.b, exact, F32, mode)
    # put rounds to 16 bits; to odd first, so that two roundings give the same as one.
    return to_odd(e.b, exact)


def exact_in_float64(b: LaneBuilder, value: Value, source: Kind) -> Value:
    """Round integers that float64 does not hold to odd, so that a later rounding to few bits gives the same as one."""
    if source.bits <= 32:
        return value
    # An integer of 2**53 and more loses 11 bits at most: of the two neighbors that lack them take the odd one.
    dropped = b.and_(value, constant(value, (1 << 11) - 1))
    is_exact = b.icmp_unsigned("==", dropped, constant(value, 0))
    sticky = b.select(is_exact, constant(value, 0), constant(value, 1 << 11))
    odd = b.or_(b.and_(value, constant(value, -1 << 11)), sticky)
    limit = constant(value, 1 << 53)
    if source.is_signed:
        # One unsigned comparison for -2**53 <= value <= 2**53.
        fits = b.icmp_unsigned("<=", b.add(value, limit), constant(value, 1 << 54))
    else:
        fits = b.icmp_unsigned("<=", value, limit)
    return b.select(fits, value, odd)


def integer_to_integer(e: InstructionEmitter, value: Value, to: Kind, source: Kind) -> Value:
    if "sat" in e.instruction.modifiers:
        value = clamp(e, value, to, source)
    return e.b.resize(value, to.bits, source.is_signed)


def clamp(e: InstructionEmitter, value: Value, to: Kind, source: Kind) -> Value:
    """Clamp to the range of ``to``, as far as ``source`` exceeds it."""
    low, high = (-(1 << to.bits - 1), (1 << to.bits - 1) - 1) if to.is_signed else (0, (1 << to.bits) - 1)
    source_low, source_high = (
        (-(1 << source.bits - 1), (1 << source.bits - 1) - 1) if source.is_signed else (0, (1 << source.bits) - 1)
    )
    if low <= source_low and high >= source_high:
        raise e.unsupported()  # as ptxas does
    compare = e.b.icmp_signed if source.is_signed else e.b.icmp_unsigned
    if low > source_low:
        value = e.b.select(compare("<", value, constant(value, low)), constant(value, low), value)
    if high < source_high:
        value = e.b.select(compare(">", value, constant(value, high)), constant(value, high), value)
    return value


def narrow(b: LaneBuilder, value: Value, name: str) -> Value:
    """Round float32 to codes of a narrow type in 32 bits, to nearest even, clamped to its range."""
    kind = NARROW[name]
    size = intrinsic(b, "fabs", clamp_to_finite(b, value, kind.largest))
    bits = b.bitcast(size, like(size, ir.IntType(32)))
    last_bit = b.and_(b.lshr(bits, constant(bits, 23 - kind.fraction)), constant(bits, 1))
    rounded = b.add(bits, b.add(last_bit, constant(bits, (1 << 22 - kind.fraction) - 1)))
    normal = b.sub(
        b.lshr(rounded, constant(bits, 23 - kind.fraction)), constant(bits, 127 - kind.bias << kind.fraction)
    )
    # Normal numbers: round in the bits of float32, then rebias. Subnormal ones are multiples of the least.
    steps = b.fmul(size, constant(size, 2.0 ** (kind.bias - 1 + kind.fraction)))  # of a subnormal number
    subnormal = b.fptoui(intrinsic(b, "roundeven", steps), bits.type)
    code = b.select(b.fcmp_ordered("<", size, constant(size, 2.0 ** (1 - kind.bias))), subnormal, normal)
    sign = b.lshr(b.bitcast(value, bits.type), constant(bits, 31))
    code = b.or_(code, b.shl(sign, constant(bits, kind.bits - 1)))
    return b.select(b.fcmp_unordered("uno", value, value), constant(code, kind.nan), code)


def widen_narrow(b: LaneBuilder, codes: Value, name: str) -> Value:
    """Convert codes of a narrow type, of as many bits or more, to float32, exactly.

    An e5m2 is the upper half of an f16. All others, shifted to the exponent and fraction of an f16, are an f16 times
    2**(bias - 15).
    """
    kind = NARROW[name]
    halves = b.resize(codes, 16)
    if name == "e5m2":
        return widen(b, b.shl(halves, constant(halves, 8)), "f16")
    sign_bit = 1 << kind.bits - 1
    sign = b.shl(b.and_(halves, constant(halves, sign_bit)), constant(halves, 16 - kind.bits))
    size = b.and_(halves, constant(halves, sign_bit - 1))
    value = widen(b, b.or_(sign, b.shl(size, constant(halves, 10 - kind.fraction))), "f16")
    value = b.fmul(value, constant(value, 2.0 ** (15 - kind.bias)))
    if name != "e4m3":
        return value
    # e4m3 has no infinity; its NaN is 0x7f with either sign.
    is_nan = b.icmp_unsigned("==", size, constant(halves, 0x7F))
    return b.select(is_nan, constant(value, float("nan")), value)


def narrow_scale(b: LaneBuilder, value: Value, rounds_up: bool, saturates: bool) -> Value:
    """Return the ue8m0 codes of the sizes of float32 numbers: the biased exponent; as cuda_fp8.hpp defines it.

    Args:
        rounds_up: Whether powers of two are rounded up (``.rp``) and not down (``.rz``).
        saturates: Whether an infinity becomes the largest number and not NaN.
    """
    bits = b.bitcast(intrinsic(b, "fabs", value), like(value, ir.IntType(32)))
    code = b.lshr(bits, constant(bits, 23))
    if rounds_up:
        # The least number is 2**-127, whose bits are 0x400000: no number up to it is rounded to the next one.
        is_above = b.icmp_unsigned(">", bits, constant(bits, 0x400000))
        is_between = b.icmp_unsigned("!=", b.and_(bits, constant(bits, 0x7FFFFF)), constant(bits, 0))
        is_finite = b.icmp_unsigned("<", bits, constant(bits, 0x7F800000))
        code = b.add(code, b.zext(b.and_(b.and_(is_above, is_between), is_finite), code.type))
    if saturates:
        is_number = b.icmp_unsigned("<=", bits, constant(bits, 0x7F800000))
        exceeds = b.and_(is_number, b.icmp_unsigned("==", code, constant(code, 0xFF)))
        code = b.select(exceeds, constant(code, 0xFE), code)
    return code


def widen_scale(b: LaneBuilder, codes: Value) -> Value:
    """Convert ue8m0 codes to float32: 2**(code - 127), and NaN for 0xff."""
    words = b.resize(codes, 32)
    bits = b.shl(words, constant(words, 23))
    # 2**-127 is subnormal in float32.
    bits = b.select(b.icmp_unsigned("==", words, constant(words, 0)), constant(bits, 1 << 22), bits)
    bits = b.select(b.icmp_unsigned("==", words, constant(words, 0xFF)), constant(bits, 0x7FFFFFFF), bits)
    return b.bitcast(bits, like(bits, F32))


def interleave(b: LaneBuilder, low: Value, high: Value) -> Value:
    """Return two vectors of 32 as one of 64, interleaved."""
    count = low.type.count
    # Positions from `count` on are those of the second vector in LLVM's shuffle.
    order = [lane // 2 + count * (lane % 2) for lane in range(2 * count)]
    return b.shuffle_vector(low, high, ir.Constant(ir.VectorType(ir.IntType(32), 2 * count), order))


OPS = (
    Op("mov", ("pred|BITS|b128|INTEGER|FLOAT",), emit_mov, passes=True),
    Op(
        "cvt",
        (
            "ROUND|INTEGRAL? ftz? sat? u8|s8|INTEGER|FLOAT|f16|bf16 u8|s8|INTEGER|FLOAT|f16|bf16",
            "rn|rz relu? satfinite? f16|bf16|f16x2|bf16x2 f32",
            "rn|rz satfinite relu f16|bf16|f16x2|bf16x2 f32",
            "rn|rz relu? tf32 f32",
            "rna satfinite? tf32 f32",
            "rn satfinite relu? e4m3x2|e5m2x2 f32|f16x2",
            "rn satfinite relu? e2m1x2|e2m3x2|e3m2x2 f32|f16x2|bf16x2",
            "rn relu? f16x2 e4m3x2|e5m2x2|e2m1x2|e2m3x2|e3m2x2",
            "rz|rp satfinite? ue8m0x2 f32|bf16x2",
            "rn bf16x2 ue8m0x2",
            "pack sat u16|s16 s32",
            "pack sat u2|s2|u4|s4|u8|s8 s32 b32",
        ),
        emit_cvt,
    ),
)
