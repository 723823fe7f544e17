"""Treat registers as numbers: the types of PTX, conversion of lanes to and from their bits, lane-wise rules.

A lane-wise rule takes the emitter, the instruction's type and its sources, and returns the result. Sources arrive as
LLVM integers or floats of that type; half-precision ones as float32, packed pairs as twice as many lanes. Rounding a
float32 result back to half precision gives the correctly rounded result of every operation but fma.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from warpcheck.lower.constants import splat
from warpcheck.lower.instruction_emitter import InstructionEmitter
from warpcheck.lower.lane_builder import LaneBuilder
from warpcheck.ptx import SIZES, Group, Instruction, Operand

__all__ = [
    "F16",
    "F32",
    "F64",
    "Kind",
    "Value",
    "constant",
    "flush",
    "from_bits",
    "intrinsic",
    "items",
    "lanewise",
    "like",
    "operand",
    "put",
    "relu",
    "saturate",
    "scale",
    "suffix",
    "to_bits",
]

Value = Any  # llvmlite's IR values carry no useful types
F16 = ir.HalfType()
F32 = ir.FloatType()
F64 = ir.DoubleType()


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


# Opcodes that change the sign of a number and no other bit.
SIGNS = ("neg", "abs", "copysign")


# Powers of two for the operands that make a result 2**64 times as large. Sums need none: they are exact there.
SCALES = {"mul": (64, 0), "fma": (64, 0, 64), "mad": (64, 0, 64), "div": (64, 0), "rcp": (-64,)}


# The least number that rounds, to the 11 bits of a normal f16, to the least normal one.
LEAST_HALF = 2.0**-14 * (1 - 2.0**-12)


def scale(b: LaneBuilder, value: Value, power: int) -> Value:
    return b.fmul(value, constant(value, 2.0**power)) if power else value


def lanewise(rule: Callable[..., Value]) -> Callable[[InstructionEmitter, Instruction], None]:
    """Return the emitter of an instruction that applies ``rule`` in every lane."""
    sources = rule.__code__.co_argcount - 2  # but for the emitter and the type

    def emit(e: InstructionEmitter, i: Instruction) -> None:
        kind = Kind(i.modifiers[-1])
        if len(i.operands) != sources + 1:
            raise e.unsupported(f"{i.name} with {len(i.operands)} operands")
        values = [operand(e, source, kind) for source in i.operands[1:]]
        # mad.wide adds a value of twice the width of its factors.
        if i.opcode == "mad" and "wide" in i.modifiers:
            values[2] = e.read(i.operands[3], 2 * kind.bits)
        if "ftz" in i.modifiers:
            values = [flush(e.b, value, kind) for value in values]
        result = rule(e, kind, *values)
        # For a result near the least normal number, flush needs it before it was rounded to a subnormal.
        if "ftz" in i.modifiers:
            larger = None
            if kind.element.name == "f32" and i.opcode in SCALES:
                larger = rule(e, kind, *(scale(e.b, v, n) for v, n in zip(values, SCALES[i.opcode], strict=True)))
            result = flush(e.b, result, kind, larger)
        if "sat" in i.modifiers and kind.is_float:
            result = saturate(e.b, result)
        if "relu" in i.modifiers:
            result = relu(e.b, result)
        # The sign of a NaN changes, too; the manual leaves its payload open, so it is not made canonical.
        if i.opcode in SIGNS and not kind.is_half and kind.is_float:
            e.write(i.operands[0], e.b.bitcast(result, like(result, ir.IntType(kind.bits))))
        else:
            put(e, i.operands[0], result, kind)

    return emit


def items(operand: Operand) -> tuple[Operand, ...]:
    """Return the operands of a group: ``{a, b}``, ``a|b``; or a single operand."""
    return operand.items if isinstance(operand, Group) else (operand,)


def operand(e: InstructionEmitter, source: Operand, kind: Kind) -> Value:
    """Return the lanes of an operand as numbers of ``kind``."""
    return from_bits(e.b, e.read(source, kind.bits), kind)


def put(e: InstructionEmitter, target: Operand, value: Value, kind: Kind) -> None:
    """Write numbers of ``kind`` to a register."""
    e.write(target, to_bits(e.b, value, kind), signed=kind.is_signed)


def from_bits(b: LaneBuilder, bits: Value, kind: Kind) -> Value:
    if not kind.is_float:
        return b.bitcast(bits, ir.VectorType(ir.IntType(16), 2 * bits.type.count)) if kind.is_packed else bits
    if kind.is_half:
        count = bits.type.count * (2 if kind.is_packed else 1)
        # A word of a packed type is two adjacent lanes, the lower half first.
        halves = b.bitcast(bits, ir.VectorType(ir.IntType(16), count))
        return widen(b, halves, kind.element.name)
    # A pair of float32 is two adjacent lanes as well.
    if kind.is_packed:
        return b.bitcast(bits, ir.VectorType(F32, 2 * bits.type.count))
    return b.bitcast(bits, like(bits, F64 if kind.bits == 64 else F32))


def to_bits(b: LaneBuilder, value: Value, kind: Kind) -> Value:
    if not kind.is_float:
        return b.bitcast(value, ir.VectorType(ir.IntType(32), value.type.count // 2)) if kind.is_packed else value
    if kind.is_half:
        value = narrow(b, value, kind.element.name)
        lanes = value.type.count // (2 if kind.is_packed else 1)
        return b.bitcast(value, ir.VectorType(ir.IntType(kind.bits), lanes))
    if kind.is_packed:
        words = to_bits(b, value, kind.element)
        return b.bitcast(words, ir.VectorType(ir.IntType(64), value.type.count // 2))
    # float64 results keep the NaN that the CPU gives them.
    bits = b.bitcast(value, like(value, ir.IntType(kind.bits)))
    return bits if kind.bits == 64 else canonical(b, value, bits)


def canonical(b: LaneBuilder, value: Value, bits: Value) -> Value:
    """Return the bits of float32 results: every NaN is 0x7fffffff. Results in f64 keep the payload of an operand.

    CUDA C++ Programming Guide, "Floating-Point Standard". A CPU keeps the payload of an operand, and makes a negative
    NaN of 0 / 0.
    """
    return b.select(b.fcmp_unordered("uno", value, value), constant(bits, 0x7FFFFFFF), bits)


def widen(b: LaneBuilder, halves: Value, name: str) -> Value:
    """Convert 16-bit floats to float32, exactly."""
    # A bfloat16 is the upper half of a float32.
    if name == "bf16":
        shifted = b.shl(b.resize(halves, 32), b.splat(16, 32, halves.type.count))
        return b.bitcast(shifted, like(halves, F32))
    return b.fpext(b.bitcast(halves, like(halves, ir.HalfType())), like(halves, F32))


def narrow(b: LaneBuilder, value: Value, name: str) -> Value:
    """Round float32 to 16-bit floats, to nearest even; NaN to the canonical 0x7fff."""
    count = value.type.count
    if name == "f16":
        half = b.bitcast(b.fptrunc(value, like(value, ir.HalfType())), like(value, ir.IntType(16)))
    else:
        bits = b.bitcast(value, like(value, ir.IntType(32)))
        # Half a unit less one, and one more if the last bit that is kept is odd: ties go to even. A carry into the
        # exponent is right as well.
        last_bit = b.and_(b.lshr(bits, b.splat(16, 32, count)), b.splat(1, 32, count))
        rounded = b.add(bits, b.add(last_bit, b.splat(0x7FFF, 32, count)))
        half = b.resize(b.lshr(rounded, b.splat(16, 32, count)), 16)
    return b.select(b.fcmp_unordered("uno", value, value), b.splat(0x7FFF, 16, count), half)


def like(value: Value, element: ir.Type) -> ir.VectorType:
    return ir.VectorType(element, value.type.count)


def constant(value: Value, number: float) -> ir.Constant:
    """Return ``number`` in every lane, in the type of ``value``."""
    return splat(value.type.element(number), value.type.count)


def suffix(value: Value) -> str:
    """Return LLVM's name of a vector type in intrinsics: v32f32."""
    element = value.type.element
    names = {ir.FloatType: "f32", ir.DoubleType: "f64"}
    return f"v{value.type.count}{names.get(type(element)) or f'i{element.width}'}"


def intrinsic(b: LaneBuilder, name: str, *values: Value) -> Value:
    return b.intrinsic(f"llvm.{name}.{suffix(values[0])}", values[0].type, *values)


def flush(b: LaneBuilder, value: Value, kind: Kind, larger: Value | None = None) -> Value:
    """Replace numbers that are subnormal in ``kind`` by zero of the same sign (``.ftz``).

    A GPU rounds a result to the bits of a normal number, however small it is, and then tests whether it is one. On an
    H200, f32 gives 0 for (1 - 2**-24) times the least normal number, but not for (1 - 2**-46) times it.

    Args:
        larger: 2**64 times the result, rounded by itself, because a subnormal in f32 was rounded to fewer bits. Results
            in f16 are not rounded yet.
    """
    if value.type.element != F32:
        return value
    least_normal = LEAST_HALF if kind.element.name == "f16" else 2.0**-126
    compared, least_normal = (value, least_normal) if larger is None else (larger, least_normal * 2.0**64)
    small = b.fcmp_ordered("<", intrinsic(b, "fabs", compared), constant(value, least_normal))
    return b.select(small, intrinsic(b, "copysign", constant(value, 0.0), value), value)


def saturate(b: LaneBuilder, value: Value) -> Value:
    """Clamp to [0, 1]; NaN becomes 0 (``.sat``)."""
    # The comparison is false for NaN, which so becomes 0.
    above_zero = b.fcmp_ordered(">", value, constant(value, 0.0))
    value = b.select(above_zero, value, constant(value, 0.0))
    return b.select(b.fcmp_ordered("<", value, constant(value, 1.0)), value, constant(value, 1.0))


def relu(b: LaneBuilder, value: Value) -> Value:
    """Clamp negatives and -0 to 0; NaN stays (``.relu``)."""
    if isinstance(value.type.element, ir.IntType):
        return intrinsic(b, "smax", value, constant(value, 0))
    # -0 <= 0 holds, and no comparison with NaN does.
    return b.select(b.fcmp_ordered("<=", value, constant(value, 0.0)), constant(value, 0.0), value)
