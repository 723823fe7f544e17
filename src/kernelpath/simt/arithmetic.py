"""Lane-wise instructions: what each does to vectors of integers and floats. PTX ISA manual, section 9.7.

A function here takes the emitter, the instruction's type and its sources, and returns the result. Sources arrive as
LLVM integers or floats of that type; half-precision ones as float32, packed pairs as twice as many lanes. Rounding a
float32 result back to half precision gives the correctly rounded result of every operation but fma.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

from llvmlite import ir

from kernelpath.simt.constants import splat
from kernelpath.simt.ptx import SIZES, Instruction, Operand

if TYPE_CHECKING:
    from kernelpath.simt.emitter import Emitter

__all__ = ["LANEWISE", "Kind", "emit_lanewise", "operand", "put"]

Value = Any  # llvmlite's IR values carry no useful types
Rule = Callable[..., Value]
LANEWISE: dict[str, Rule] = {}

F16, F32, F64 = ir.HalfType(), ir.FloatType(), ir.DoubleType()


@dataclass(frozen=True)
class Kind:
    """A fundamental type of PTX, by its name: ``s32``, ``f16x2``."""

    name: str

    @property
    def bits(self) -> int:
        return 1 if self.name == "pred" else 8 * SIZES[self.name]

    @property
    def is_float(self) -> bool:
        return "f" in self.name

    @property
    def is_signed(self) -> bool:
        return self.name.startswith("s")

    @property
    def is_packed(self) -> bool:
        return self.name.endswith("x2")

    @property
    def is_half(self) -> bool:
        return self.name.removesuffix("x2") in ("f16", "bf16")

    @property
    def element(self) -> Kind:
        return Kind(self.name.removesuffix("x2"))


def lanewise(*opcodes: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        LANEWISE.update(dict.fromkeys(opcodes, rule))
        return rule

    return register


def emit_lanewise(e: Emitter, i: Instruction) -> None:
    """Read the sources, apply the rule, write the result."""
    kind, rule = Kind(i.modifiers[-1]), LANEWISE[i.opcode]
    if len(i.operands) != rule.__code__.co_argcount - 1:  # the rule has no target, but the emitter and the type
        raise e.unsupported(f"{i.name} with {len(i.operands)} operands")
    values = [operand(e, source, kind) for source in i.operands[1:]]
    if i.opcode == "mad" and "wide" in i.modifiers:
        values[2] = e.read(i.operands[3], 2 * kind.bits)
    if "ftz" in i.modifiers:
        values = [flush(e, value, kind) for value in values]
    result = rule(e, kind, *values)
    if "ftz" in i.modifiers:
        result = flush(e, result, kind)
    if "sat" in i.modifiers and kind.is_float:
        result = saturate(e, result)
    if "relu" in i.modifiers:
        result = relu(e, result)
    put(e, i.operands[0], result, kind)


def operand(e: Emitter, source: Operand, kind: Kind) -> Value:
    """The lanes of an operand as numbers of ``kind``."""
    return from_bits(e, e.read(source, kind.bits), kind)


def put(e: Emitter, target: Operand, value: Value, kind: Kind) -> None:
    """Write numbers of ``kind`` to a register."""
    e.write(target, to_bits(e, value, kind), signed=kind.is_signed)


def from_bits(e: Emitter, bits: Value, kind: Kind) -> Value:
    if not kind.is_float:
        return bits
    if kind.is_half:
        count = bits.type.count * (2 if kind.is_packed else 1)
        halves = e.b.bitcast(bits, ir.VectorType(ir.IntType(16), count))
        return widen(e, halves, kind.element.name)
    return e.b.bitcast(bits, like(bits, F64 if kind.bits == 64 else F32))


def to_bits(e: Emitter, value: Value, kind: Kind) -> Value:
    if not kind.is_float:
        return value
    if kind.is_half:
        value = narrow(e, value, kind.element.name)
        lanes = value.type.count // (2 if kind.is_packed else 1)
        return e.b.bitcast(value, ir.VectorType(ir.IntType(kind.bits), lanes))
    return e.b.bitcast(value, like(value, ir.IntType(kind.bits)))


def widen(e: Emitter, halves: Value, name: str) -> Value:
    """16-bit floats to float32; exact."""
    if name == "bf16":
        shifted = e.b.shl(e.resize(halves, 32), e.splat(16, 32, halves.type.count))
        return e.b.bitcast(shifted, like(halves, F32))
    return e.b.fpext(e.b.bitcast(halves, like(halves, ir.HalfType())), like(halves, F32))


def narrow(e: Emitter, value: Value, name: str) -> Value:
    """float32 to 16-bit floats, to the nearest even; NaN to the canonical 0x7fff."""
    b, count = e.b, value.type.count
    if name == "f16":
        half = b.bitcast(b.fptrunc(value, like(value, ir.HalfType())), like(value, ir.IntType(16)))
    else:
        bits = b.bitcast(value, like(value, ir.IntType(32)))
        odd = b.and_(b.lshr(bits, e.splat(16, 32, count)), e.splat(1, 32, count))
        rounded = b.add(bits, b.add(odd, e.splat(0x7FFF, 32, count)))
        half = e.resize(b.lshr(rounded, e.splat(16, 32, count)), 16)
    return b.select(b.fcmp_unordered("uno", value, value), e.splat(0x7FFF, 16, count), half)


def like(value: Value, element: ir.Type) -> ir.VectorType:
    return ir.VectorType(element, value.type.count)


def constant(value: Value, number: float) -> ir.Constant:
    """``number`` in every lane, in the type of ``value``."""
    return splat(value.type.element(number), value.type.count)


def suffix(value: Value) -> str:
    """The name that LLVM gives a vector type in intrinsics: v32f32."""
    element = value.type.element
    names = {ir.FloatType: "f32", ir.DoubleType: "f64"}
    return f"v{value.type.count}{names.get(type(element)) or f'i{element.width}'}"


def intrinsic(e: Emitter, name: str, *values: Value) -> Value:
    return e.intrinsic(f"llvm.{name}.{suffix(values[0])}", values[0].type, *values)


def flush(e: Emitter, value: Value, kind: Kind) -> Value:
    """Numbers of ``kind`` that are subnormal to zero of the same sign (``.ftz``)."""
    if value.type.element != F32:
        return value
    least = 2.0**-14 if kind.element.name == "f16" else 2.0**-126
    small = e.b.fcmp_ordered("<", intrinsic(e, "fabs", value), constant(value, least))
    return e.b.select(small, intrinsic(e, "copysign", constant(value, 0.0), value), value)


def saturate(e: Emitter, value: Value) -> Value:
    """Clamp to [0, 1]; NaN becomes 0 (``.sat``)."""
    above_zero = e.b.fcmp_ordered(">", value, constant(value, 0.0))
    value = e.b.select(above_zero, value, constant(value, 0.0))
    return e.b.select(e.b.fcmp_ordered("<", value, constant(value, 1.0)), value, constant(value, 1.0))


def relu(e: Emitter, value: Value) -> Value:
    """Clamp negatives to 0; NaN stays (``.relu``)."""
    return e.b.select(e.b.fcmp_ordered("<", value, constant(value, 0.0)), constant(value, 0.0), value)


# Integer and float arithmetic


@lanewise("add")
def add(e: Emitter, t: Kind, x: Value, y: Value) -> Value:
    if t.is_float:
        return rounded(e, partial(add_floats, e), x, y)
    return intrinsic(e, "sadd.sat", x, y) if "sat" in e.instruction.modifiers else with_carry(e, x, y)


@lanewise("sub")
def sub(e: Emitter, t: Kind, x: Value, y: Value) -> Value:
    if t.is_float:
        return rounded(e, partial(add_floats, e), x, e.b.fneg(y))
    return intrinsic(e, "ssub.sat", x, y) if "sat" in e.instruction.modifiers else with_borrow(e, x, y)


@lanewise("addc")
def addc(e: Emitter, t: Kind, x: Value, y: Value) -> Value:
    return with_carry(e, x, y, carry(e, t))


@lanewise("subc")
def subc(e: Emitter, t: Kind, x: Value, y: Value) -> Value:
    return with_borrow(e, x, y, carry(e, t))


def carry(e: Emitter, t: Kind) -> Value:
    """What the last instruction with ``.cc`` carried or borrowed."""
    if "%cc" not in e.values:
        raise e.unsupported(f"{e.instruction.name} without .cc before it in its basic block")
    return e.resize(e.values["%cc"], t.bits)


def set_carry(e: Emitter, *overflows: Value) -> None:
    """Keep the carry or borrow for the next instruction that takes it: whether a sum or difference went round."""
    if e.guarded:
        raise e.unsupported("predicated " + e.instruction.name)
    e.values["%cc"] = reduce(e.b.or_, overflows)


def with_carry(e: Emitter, x: Value, y: Value, carry_in: Value | None = None) -> Value:
    """The sum; with ``.cc`` its carry is kept."""
    both = e.b.add(x, y)
    total = both if carry_in is None else e.b.add(both, carry_in)
    if "cc" in e.instruction.modifiers:
        set_carry(e, e.b.icmp_unsigned("<", both, x), e.b.icmp_unsigned("<", total, both))
    return total


def with_borrow(e: Emitter, x: Value, y: Value, borrow_in: Value | None = None) -> Value:
    """The difference; with ``.cc`` its borrow is kept."""
    both = e.b.sub(x, y)
    rest = both if borrow_in is None else e.b.sub(both, borrow_in)
    if "cc" in e.instruction.modifiers:
        set_carry(e, e.b.icmp_unsigned(">", both, x), e.b.icmp_unsigned(">", rest, both))
    return rest


def directed_mode(e: Emitter) -> str | None:
    """The rounding that the instruction asks for, where that is not to nearest."""
    return next((modifier for modifier in e.instruction.modifiers if modifier in ("rz", "rm", "rp")), None)


def rounded(e: Emitter, operation: Callable[..., Value], *values: Value) -> Value:
    """Apply a float operation under the instruction's rounding; the directed ones through float64.

    There a product of float32 is exact, and a quotient or root that is not lies too far from any float32 to reach it.
    """
    mode = directed_mode(e)
    if mode is None:
        return operation(*values)
    if values[0].type.element != F32:
        raise e.unsupported()
    return directed(e, operation(*(e.b.fpext(value, like(value, F64)) for value in values)), F32, mode)


def add_floats(e: Emitter, x: Value, y: Value) -> Value:
    """The sum, for ``rounded``: under a directed rounding the rest that float64 drops must still show."""
    mode, b = directed_mode(e), e.b
    if mode is None:
        return b.fadd(x, y)
    total = b.fneg(b.fadd(b.fneg(x), b.fneg(y))) if mode == "rm" else b.fadd(x, y)  # subtle: 1 - 1 is -0 under rm
    of_y = b.fsub(total, x)
    rest = b.fadd(b.fsub(x, b.fsub(total, of_y)), b.fsub(y, of_y))  # what rounding took, exactly: Knuth's two-sum
    bits = b.bitcast(total, like(total, ir.IntType(64)))
    lost = b.and_(b.fcmp_ordered("!=", rest, constant(rest, 0.0)), is_even(e, bits))
    away = b.icmp_signed(">=", b.xor(b.bitcast(rest, bits.type), bits), constant(bits, 0))  # from zero: of one sign
    odd = b.add(bits, b.select(away, constant(bits, 1), constant(bits, -1)))
    return b.bitcast(b.select(lost, odd, bits), total.type)


def is_even(e: Emitter, bits: Value) -> Value:
    return e.b.icmp_unsigned("==", e.b.and_(bits, constant(bits, 1)), constant(bits, 0))


def directed(e: Emitter, wide: Value, element: ir.Type, mode: str) -> Value:
    """Narrow floats toward zero (rz), down (rm) or up (rp): round to nearest, then step back where it overshot."""
    b = e.b
    value = b.fptrunc(wide, like(wide, element))
    back = b.fpext(value, wide.type)
    positive = b.fcmp_ordered(">", wide, constant(wide, 0.0))
    too_big, too_small = b.fcmp_ordered(">", back, wide), b.fcmp_ordered("<", back, wide)
    overshot = {
        "rm": too_big,
        "rp": too_small,
        "rz": b.select(positive, too_big, too_small),
    }[mode]
    bits = b.bitcast(value, like(value, ir.IntType(16 if element == F16 else 32)))
    # subtle: float bits order by magnitude, so one less is one step toward zero, one more is one away from it.
    toward_zero = b.select(positive, too_big, too_small)
    step = b.select(toward_zero, constant(bits, -1), constant(bits, 1))
    return b.select(overshot, b.bitcast(b.add(bits, step), value.type), value)


@lanewise("mul")
def mul(e: Emitter, t: Kind, x: Value, y: Value) -> Value:
    if t.is_float:
        return rounded(e, e.b.fmul, x, y)
    if "wide" in e.instruction.modifiers or "hi" in e.instruction.modifiers:
        x, y = (e.resize(v, 2 * t.bits, t.is_signed) for v in (x, y))
    product = e.b.mul(x, y)
    if "hi" in e.instruction.modifiers:
        return e.resize(e.b.lshr(product, constant(product, t.bits)), t.bits)
    return product


@lanewise("div")
def div(e: Emitter, t: Kind, x: Value, y: Value) -> Value:
    return rounded(e, e.b.fdiv, x, y) if t.is_float else divide(e, t, x, y)[0]


@lanewise("rem")
def rem(e: Emitter, t: Kind, x: Value, y: Value) -> Value:
    return divide(e, t, x, y)[1]


def divide(e: Emitter, t: Kind, x: Value, y: Value) -> tuple[Value, Value]:
    """Quotient and remainder. Dividing by zero gives all ones and x, as GPUs do; the manual leaves it open."""
    zero = e.b.icmp_unsigned("==", y, constant(y, 0))
    by = e.b.select(zero, constant(y, 1), y)
    if t.is_signed:
        minus_one = e.b.icmp_unsigned("==", y, constant(y, -1))
        by = e.b.select(minus_one, constant(y, 1), by)  # subtle: the least integer over -1 traps on a CPU
        quotient = e.b.select(minus_one, e.b.neg(x), e.b.sdiv(x, by))
        rest = e.b.srem(x, by)
    else:
        quotient, rest = e.b.udiv(x, by), e.b.urem(x, by)
    return e.b.select(zero, constant(x, -1), quotient), e.b.select(zero, x, rest)


@lanewise("neg")
def neg(e: Emitter, t: Kind, x: Value) -> Value:
    return e.b.fneg(x) if t.is_float else e.b.neg(x)


@lanewise("abs")
def absolute(e: Emitter, t: Kind, x: Value) -> Value:
    if t.is_float:
        return intrinsic(e, "fabs", x)
    return e.b.select(e.b.icmp_signed("<", x, constant(x, 0)), e.b.neg(x), x)


@lanewise("min", "max")
def extreme(e: Emitter, t: Kind, x: Value, y: Value, *, op: str = "") -> Value:
    b, op = e.b, op or ("<" if e.instruction.opcode == "min" else ">")
    if not t.is_float:
        compare = b.icmp_signed if t.is_signed else b.icmp_unsigned
        return b.select(compare(op, x, y), x, y)
    bits = [b.bitcast(v, like(v, ir.IntType(64 if t.bits == 64 else 32))) for v in (x, y)]
    # Equal numbers differ only where they are zeros: -0 is less than +0.
    same = b.bitcast((b.or_ if op == "<" else b.and_)(*bits), x.type)
    chosen = b.select(b.fcmp_ordered(op, x, y), x, y)
    chosen = b.select(b.fcmp_ordered("==", x, y), same, chosen)
    x_is_nan, y_is_nan = (b.fcmp_unordered("uno", v, v) for v in (x, y))
    if "NaN" in e.instruction.modifiers:
        return b.select(x_is_nan, x, b.select(y_is_nan, y, chosen))
    return b.select(x_is_nan, y, b.select(y_is_nan, x, chosen))


@lanewise("fma")
def fma(e: Emitter, t: Kind, x: Value, y: Value, z: Value) -> Value:
    if directed_mode(e):
        return rounded(e, lambda x, y, z: add_floats(e, e.b.fmul(x, y), z), x, y, z)
    if t.is_half:
        return to_odd(e, intrinsic(e, "fma", *(e.b.fpext(v, like(v, F64)) for v in (x, y, z))))
    return intrinsic(e, "fma", x, y, z)


def to_odd(e: Emitter, wide: Value) -> Value:
    """Narrow float64 to float32 so that rounding once more, to half precision, is as rounding once."""
    b = e.b
    bits = b.bitcast(wide, like(wide, ir.IntType(64)))
    low = b.and_(bits, constant(bits, (1 << 29) - 1))
    sticky = b.select(b.icmp_unsigned("!=", low, constant(low, 0)), constant(bits, 1 << 29), constant(bits, 0))
    kept = b.or_(b.and_(bits, constant(bits, -1 << 29)), sticky)
    return b.fptrunc(b.bitcast(kept, wide.type), like(wide, F32))


@lanewise("mad")
def mad(e: Emitter, t: Kind, x: Value, y: Value, z: Value) -> Value:
    if t.is_float:
        return fma(e, t, x, y, z)
    return with_carry(e, mul(e, t, x, y), z)


@lanewise("madc")
def madc(e: Emitter, t: Kind, x: Value, y: Value, z: Value) -> Value:
    return addc(e, t, mul(e, t, x, y), z)


@lanewise("mul24")
def mul24(e: Emitter, t: Kind, x: Value, y: Value) -> Value:
    """The product of the low 24 bits of two words: its bits 0 to 31, or with ``.hi`` 16 to 47."""
    move = e.b.ashr if t.is_signed else e.b.lshr
    x, y = (e.resize(move(e.b.shl(v, constant(v, 8)), constant(v, 8)), 64, t.is_signed) for v in (x, y))
    product = e.b.mul(x, y)
    return e.resize(e.b.lshr(product, constant(product, 16 * ("hi" in e.instruction.modifiers))), 32)


@lanewise("mad24")
def mad24(e: Emitter, t: Kind, x: Value, y: Value, z: Value) -> Value:
    return e.b.add(mul24(e, t, x, y), z)


@lanewise("sad")
def sad(e: Emitter, t: Kind, x: Value, y: Value, z: Value) -> Value:
    compare = e.b.icmp_signed if t.is_signed else e.b.icmp_unsigned
    return e.b.add(z, e.b.select(compare("<", x, y), e.b.sub(y, x), e.b.sub(x, y)))


@lanewise("dp4a")
def dp4a(e: Emitter, t: Kind, x: Value, y: Value, z: Value) -> Value:
    signed = [name == "s32" for name in e.instruction.modifiers[-2:]]
    for byte in range(4):
        x_byte, y_byte = (e.resize(byte_of(e, v, byte), 32, s) for v, s in zip((x, y), signed, strict=True))
        z = e.b.add(z, e.b.mul(x_byte, y_byte))
    return z


def byte_of(e: Emitter, value: Value, which: int) -> Value:
    return e.resize(e.b.lshr(value, constant(value, 8 * which)), 8)


# Approximations: each within the error that the manual allows, computed in float32


@lanewise("rcp")
def rcp(e: Emitter, t: Kind, x: Value) -> Value:
    return rounded(e, e.b.fdiv, constant(x, 1.0), x)


@lanewise("sqrt")
def sqrt(e: Emitter, t: Kind, x: Value) -> Value:
    return rounded(e, partial(intrinsic, e, "sqrt"), x)


@lanewise("rsqrt")
def rsqrt(e: Emitter, t: Kind, x: Value) -> Value:
    return e.b.fdiv(constant(x, 1.0), intrinsic(e, "sqrt", x))


@lanewise("ex2")
def ex2(e: Emitter, t: Kind, x: Value) -> Value:
    return intrinsic(e, "exp2", x)


@lanewise("lg2")
def lg2(e: Emitter, t: Kind, x: Value) -> Value:
    return intrinsic(e, "log2", x)


@lanewise("sin")
def sin(e: Emitter, t: Kind, x: Value) -> Value:
    return intrinsic(e, "sin", x)


@lanewise("cos")
def cos(e: Emitter, t: Kind, x: Value) -> Value:
    return intrinsic(e, "cos", x)


@lanewise("tanh")
def tanh(e: Emitter, t: Kind, x: Value) -> Value:
    """1 - 2 / (e^2x + 1) on |x|; the manual allows a relative error of 2^-11, so small x is returned as it is."""
    b, size = e.b, intrinsic(e, "fabs", x)
    power = intrinsic(e, "exp2", b.fmul(size, constant(x, 2.8853900817779268)))
    tail = b.fdiv(constant(x, 2.0), b.fadd(power, constant(x, 1.0)))
    value = b.fsub(constant(x, 1.0), tail)
    cube = b.fmul(size, b.fmul(size, b.fmul(size, constant(x, -1.0 / 3.0))))
    value = b.select(b.fcmp_ordered("<", size, constant(x, 0.05)), b.fadd(size, cube), value)
    value = intrinsic(e, "copysign", value, x)
    return b.select(b.fcmp_unordered("uno", x, x), x, value)


@lanewise("copysign")
def copysign(e: Emitter, t: Kind, sign: Value, size: Value) -> Value:
    return intrinsic(e, "copysign", size, sign)
