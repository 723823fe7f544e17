"""Round in a direction, which no CPU instruction does for a single operation. PTX ISA manual, 9.7.3.

An operation is computed in float64, and the result narrowed in the direction required.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from warpcheck.isa.values import F16, F32, F64, Value, constant, like
from warpcheck.lower.instruction_emitter import InstructionEmitter
from warpcheck.lower.lane_builder import LaneBuilder

__all__ = ["add_floats", "directed", "directed_mode", "rounded", "to_odd"]


def directed_mode(e: InstructionEmitter) -> str | None:
    """Return the rounding of the instruction, if it is not to nearest."""
    return next((modifier for modifier in e.instruction.modifiers if modifier in ("rz", "rm", "rp")), None)


def rounded(e: InstructionEmitter, operation: Callable[..., Value], *values: Value) -> Value:
    """Apply a float operation under the instruction's rounding; a directed one goes through float64.

    There a product of float32 is exact, and an inexact quotient or root is too far from any float32 to be rounded to
    one.
    """
    mode = directed_mode(e)
    if mode is None:
        return operation(*values)
    # A directed float64 would need a type that is wider.
    if values[0].type.element != F32:
        raise e.unsupported()
    return directed(e.b, operation(*(e.b.fpext(value, like(value, F64)) for value in values)), F32, mode)


def add_floats(e: InstructionEmitter, x: Value, y: Value) -> Value:
    """Return the sum, for ``rounded``: under a directed rounding the error of the float64 sum must still count."""
    mode = directed_mode(e)
    b = e.b
    if mode is None:
        return b.fadd(x, y)
    total = b.fneg(b.fadd(b.fneg(x), b.fneg(y))) if mode == "rm" else b.fadd(x, y)  # subtle: 1 - 1 is -0 under rm
    of_y = b.fsub(total, x)
    error = b.fadd(b.fsub(x, b.fsub(total, of_y)), b.fsub(y, of_y))  # what rounding took, exactly: Knuth's two-sum
    # Round to odd in float64: an inexact sum with an even last bit moves one place toward the exact one.
    bits = b.bitcast(total, like(total, ir.IntType(64)))
    is_inexact = b.and_(b.fcmp_ordered("!=", error, constant(error, 0.0)), is_even(e.b, bits))
    is_away_from_zero = b.icmp_signed(
        ">=", b.xor(b.bitcast(error, bits.type), bits), constant(bits, 0)
    )  # from zero: of one sign
    rounded_to_odd = b.add(bits, b.select(is_away_from_zero, constant(bits, 1), constant(bits, -1)))
    return b.bitcast(b.select(is_inexact, rounded_to_odd, bits), total.type)


def is_even(b: LaneBuilder, bits: Value) -> Value:
    return b.icmp_unsigned("==", b.and_(bits, constant(bits, 1)), constant(bits, 0))


def directed(b: LaneBuilder, value_to_narrow: Value, element: ir.Type, mode: str) -> Value:
    """Narrow floats toward zero (rz), down (rm) or up (rp): round to nearest, then step back if it overshot."""
    value = b.fptrunc(value_to_narrow, like(value_to_narrow, element))
    back = b.fpext(value, value_to_narrow.type)
    positive = b.fcmp_ordered(">", value_to_narrow, constant(value_to_narrow, 0.0))
    too_big = b.fcmp_ordered(">", back, value_to_narrow)
    too_small = b.fcmp_ordered("<", back, value_to_narrow)
    overshot = {
        "rm": too_big,
        "rp": too_small,
        "rz": b.select(positive, too_big, too_small),
    }[mode]
    # One less than the bits of infinity is the largest finite number, so an overflow steps back as well.
    bits = b.bitcast(value, like(value, ir.IntType(16 if element == F16 else 32)))
    # subtle: float bits order by magnitude, so one less is one step toward zero, one more is one away from it.
    toward_zero = b.select(positive, too_big, too_small)
    step = b.select(toward_zero, constant(bits, -1), constant(bits, 1))
    return b.select(overshot, b.bitcast(b.add(bits, step), value.type), value)


def to_odd(b: LaneBuilder, value_to_narrow: Value) -> Value:
    """Narrow float64 to float32, rounding to odd, so that a second rounding to half precision gives the same as one."""
    bits = b.bitcast(value_to_narrow, like(value_to_narrow, ir.IntType(64)))
    # The 29 bits that float32 lacks: where one of them is set, the last bit that is kept becomes 1.
    low = b.and_(bits, constant(bits, (1 << 29) - 1))
    sticky = b.select(b.icmp_unsigned("!=", low, constant(low, 0)), constant(bits, 1 << 29), constant(bits, 0))
    sticky_bits = b.or_(b.and_(bits, constant(bits, -1 << 29)), sticky)
    return b.fptrunc(b.bitcast(sticky_bits, value_to_narrow.type), like(value_to_narrow, F32))
