"""Align and truncate terms as a tensor core does when it adds floats.

No manual defines these sums. Products are exact, but all of them and the accumulator are truncated to a multiple of
2**-25 of the largest power of two among them (2**-13 for wgmma of 8-bit floats), and their sum is truncated to the 24
bits of a float32 (14). Where products of 4 bits have scale factors, the sums of 16 products are the terms: they are
added exactly, their power of two is that of their scale factors, and they are truncated 35 bits below the largest, as
Microsoft's MMA-Sim models a B200 (Xie et al., arXiv:2511.10909). The power of two of a product is the product of those
of its factors. For wgmma this equals recordings of an H200 bit for bit. For mma.sync and wmma it is the same model,
which agrees with the published tests of Hopper's tensor cores and with an H200 that added 0.75 units in the last place
to 1 and returned 1. See Fasi, Higham,
Mikaitis and Pranesh, "Numerical behavior of NVIDIA tensor cores", PeerJ Computer Science 7:e330 (2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from warpcheck.isa.values import F32, F64, Value, constant, intrinsic
from warpcheck.lower.lane_builder import I32, I64, LaneBuilder

__all__ = [
    "FRACTION",
    "FRACTION_OF_BLOCKS",
    "LEAST_EXPONENT",
    "LEAST_POWER",
    "SIGNIFICAND",
    "ZERO_POWER",
    "Term",
    "add_terms",
    "power_of_two",
    "powers",
    "scales",
    "to_float64",
    "truncate_significand",
]

# Terms are truncated this many bits below the largest power of two.
FRACTION = 25

# The same for sums of products of 4 bits with their scale factors.
FRACTION_OF_BLOCKS = 35

# Bits of the fraction that a sum keeps.
SIGNIFICAND = 23

# The power of two of a subnormal number of each type.
LEAST_EXPONENT = {"f16": -14, "bf16": -126, "tf32": -126, "f32": -126, "e4m3": -6, "e5m2": -14, "e2m3": 0, "e3m2": -2}
LEAST_EXPONENT |= {"e2m1": 0, "ue4m3": -6, "ue8m0": -127}

# The power of two of the number 0: no sum is less.
ZERO_POWER = -2000

# A lower bound of the largest power, which keeps its scales within the range of float64. All terms are 0 below.
LEAST_POWER = -900


@dataclass(frozen=True)
class Term:
    """A product: its factors as vectors of float32, and the powers of two of the factors."""

    factors: tuple[Value, Value]
    powers: tuple[Value, Value]


def add_terms(b: LaneBuilder, accumulator: Value, terms: Sequence[Term]) -> Value:
    """Return the accumulator plus all terms at once, truncated to a float32."""
    power = powers(b, accumulator, LEAST_EXPONENT["f32"])
    for term in terms:
        power = intrinsic(b, "smax", power, b.add(*term.powers))
    power = intrinsic(b, "smax", power, constant(power, LEAST_POWER))
    # In units of 2**(power - FRACTION) a term is truncated to a whole number. 33 of these add up to less than 2**53, so
    # float64 adds them exactly, in any order.
    up, down = scales(b, power, FRACTION)
    total = intrinsic(b, "trunc", b.fmul(to_float64(b, accumulator), up))
    for term in terms:
        first, second = (to_float64(b, factor) for factor in term.factors)
        total = b.fadd(total, intrinsic(b, "trunc", b.fmul(b.fmul(first, second), up)))
    return truncate_significand(b, b.fmul(total, down), SIGNIFICAND)


def scales(b: LaneBuilder, power: Value, fraction: int) -> tuple[Value, Value]:
    """Return 2**(fraction - power) and its reciprocal as float64."""
    return (
        power_of_two(b, b.sub(constant(power, fraction), power)),
        power_of_two(b, b.add(power, constant(power, -fraction))),
    )


def truncate_significand(b: LaneBuilder, total: Value, kept_bits: int) -> Value:
    """Return float64 values as float32, with the bits of the fraction below ``kept_bits`` cut off."""
    bits = b.bitcast(total, ir.VectorType(I64, total.type.count))
    bits = b.and_(bits, constant(bits, -1 << 52 - kept_bits))  # a float64 has 52 bits of fraction
    return b.fptrunc(b.bitcast(bits, total.type), ir.VectorType(F32, total.type.count))


def powers(b: LaneBuilder, values: Value, least_power: int) -> Value:
    """Return the power of two of each float32; for a subnormal number of its own type the least one."""
    bits = b.bitcast(values, ir.VectorType(I32, values.type.count))
    field = b.and_(b.lshr(bits, constant(bits, 23)), constant(bits, 255))
    power = intrinsic(b, "smax", b.add(field, constant(field, -127)), constant(bits, least_power))
    is_zero = b.fcmp_ordered("==", values, constant(values, 0.0))
    return b.select(is_zero, constant(bits, ZERO_POWER), power)


def power_of_two(b: LaneBuilder, power: Value) -> Value:
    """Return powers of two as float64."""
    bits = b.resize(b.add(power, constant(power, 1023)), 64)
    return b.bitcast(b.shl(bits, constant(bits, 52)), ir.VectorType(F64, power.type.count))


def to_float64(b: LaneBuilder, values: Value) -> Value:
    return b.fpext(values, ir.VectorType(F64, values.type.count))
