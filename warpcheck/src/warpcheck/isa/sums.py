"""Accumulate products into D for wgmma and tcgen05.mma, 16 rows of a column at a time.

Integers are simply added. Floats are truncated as ``truncation`` describes.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from warpcheck.isa.matrix import count_loop, multiply_add, spread
from warpcheck.isa.truncation import (
    FRACTION_OF_BLOCKS,
    LEAST_EXPONENT,
    LEAST_POWER,
    SIGNIFICAND,
    ZERO_POWER,
    powers,
    scales,
    to_float64,
    truncate_significand,
)
from warpcheck.isa.values import F32, Value, constant, intrinsic
from warpcheck.lower.lane_builder import I8, I32, I64, POINTER, LaneBuilder

__all__ = [
    "EXPONENTS",
    "ROWS",
    "ROW_BYTES",
    "ScaleFactors",
    "add_floats",
    "add_integers",
    "add_scaled_blocks",
    "allocate_numbers",
    "store_numbers",
]

ROWS = 16  # that a warp has of D and A
ROW_BYTES = 4 * ROWS
# Returns, for a column of B and a block along k, the products of the scale factors with 16 rows of A, as float64, and
# their powers of two.
ScaleFactors = Callable[[Value, int], tuple[Value, Value]]

BLOCK_OF_SCALE = 16  # numbers of 4 bits that are added exactly
# A has at most 32 numbers along k, of 8-bit types, in ROW_BYTES each.
EXPONENTS = 2048  # bytes from A as numbers to their powers of two


def add_integers(
    b: LaneBuilder, factors: Value, b_numbers: Value, depth: int, steps: tuple[int, int], sums: list[Value]
) -> list[Value]:
    """Return the sums of 8 columns, adding one k after another."""
    vector = sums[0].type
    number = sums[0].type.element
    before = b.block
    body = b.append_basic_block()
    after = b.append_basic_block()
    b.branch(body)
    b.position_at_end(body)
    k, *columns = (b.phi(kind) for kind in (I32, *[vector] * 8))
    a_row = b.load(b.gep(factors, [b.mul(k, I32(ROW_BYTES))], source_etype=I8), typ=vector, align=4)
    following = []
    for n, column in enumerate(columns):
        b_index = b.add(b.mul(k, I32(steps[1])), I32(n * steps[0]))
        factor = b.load(b.gep(b_numbers, [b_index], source_etype=number), typ=number)
        # Sums wrap around; with .satfinite the products alone are added, and saturated to D behind it (products).
        following.append(multiply_add(b, a_row, spread(b, factor, vector), column))
    next_k = b.add(k, I32(1))
    for phi, initial, next_value in zip((k, *columns), (I32(0), *sums), (next_k, *following), strict=True):
        phi.add_incoming(initial, before)
        phi.add_incoming(next_value, body)
    b.cbranch(b.icmp_unsigned("<", next_k, I32(depth)), body, after)
    b.position_at_end(after)
    return following


def add_floats(
    b: LaneBuilder,
    factors: Value,
    b_numbers: Value,
    depth: int,
    steps: tuple[int, int],
    accumulator_values: list[Value],
    fraction: int,
    kept_bits: int,
    scale_factors: ScaleFactors | None = None,
) -> list[Value]:
    """Return the sums of 8 columns, truncated to ``kept_bits``; terms are truncated ``fraction`` bits below the
    largest.

    Args:
        scale_factors: See ``ScaleFactors``.
    """
    columns = allocate_numbers(b, 8 * ROWS)
    for n, column in enumerate(accumulator_values):
        b.store(column, b.gep(columns, [I32(n)], source_etype=column.type), align=4)
    numbers_of = ir.VectorType(F32, ROWS)
    powers_of = ir.VectorType(I32, ROWS)
    with count_loop(b, 8) as n:
        column_pointer = b.gep(columns, [n], source_etype=numbers_of)
        column = b.load(column_pointer, typ=numbers_of, align=4)

        def largest(k: Value, power: Value) -> Value:
            from_a, from_b = pair(b, factors, EXPONENTS, b_numbers, 32 * depth, steps, n, k, powers_of)
            return intrinsic(b, "smax", power, b.add(from_a, from_b))

        if scale_factors is None:
            power = fold(b, depth, powers(b, column, LEAST_EXPONENT["f32"]), largest)
            factor = None
        else:
            factor, scale_power = scale_factors(n, 0)
            power = fold(b, depth, constant(b.bitcast(column, powers_of), 2 * ZERO_POWER), largest)
            power = intrinsic(b, "smax", b.add(power, scale_power), powers(b, column, LEAST_EXPONENT["f32"]))
        power = intrinsic(b, "smax", power, constant(power, LEAST_POWER))
        # 33 whole numbers below 2**(fraction + 2) add up to less than 2**53: float64 adds them exactly, in any order.
        up, down = scales(b, power, fraction)

        def add(k: Value, total: Value) -> Value:
            from_a, from_b = (to_float64(b, v) for v in pair(b, factors, 0, b_numbers, 0, steps, n, k, numbers_of))
            term = b.fmul(b.fmul(from_a, from_b), up)
            return b.fadd(total, intrinsic(b, "trunc", term if factor is None else b.fmul(term, factor)))

        total = fold(b, depth, intrinsic(b, "trunc", b.fmul(to_float64(b, column), up)), add)
        b.store(truncate_significand(b, b.fmul(total, down), kept_bits), column_pointer, align=4)
    return [b.load(b.gep(columns, [I32(n)], source_etype=numbers_of), typ=numbers_of, align=4) for n in range(8)]


def add_scaled_blocks(
    b: LaneBuilder,
    factors: Value,
    b_numbers: Value,
    depth: int,
    accumulator_values: list[Value],
    scale_factors: ScaleFactors,
) -> list[Value]:
    """Return the sums of 8 columns of numbers of 4 bits, whose blocks of 16 have scale factors; see ``truncation``.

    Args:
        factors: A, 16 rows for each k; ``b_numbers``: B, ``depth`` numbers for each column.
        scale_factors: See ``ScaleFactors``.
    """
    columns = allocate_numbers(b, 8 * ROWS)
    for n, column in enumerate(accumulator_values):
        b.store(column, b.gep(columns, [I32(n)], source_etype=column.type), align=4)
    numbers_of = ir.VectorType(F32, ROWS)
    with count_loop(b, 8) as n:
        column_pointer = b.gep(columns, [n], source_etype=numbers_of)
        column = b.load(column_pointer, typ=numbers_of, align=4)
        power = powers(b, column, LEAST_EXPONENT["f32"])
        # An accumulator of 0 counts as the least normal number.
        power = intrinsic(b, "smax", power, constant(power, LEAST_EXPONENT["f32"]))
        terms = []
        for block in range(depth // BLOCK_OF_SCALE):

            def add(k: Value, total: Value, block: int = block) -> Value:
                index = b.add(k, I32(BLOCK_OF_SCALE * block))
                from_a, from_b = pair(b, factors, 0, b_numbers, 0, (depth, 1), n, index, numbers_of)
                # A product is a multiple of 1/4 and at most 36, so a float32 has the sum exactly.
                return b.fadd(total, b.fmul(from_a, from_b))

            total = fold(b, BLOCK_OF_SCALE, constant(column, 0.0), add)
            factor, scale_power = scale_factors(n, block)
            power = intrinsic(b, "smax", power, scale_power)
            terms.append(b.fmul(to_float64(b, total), factor))
        up, down = scales(b, power, FRACTION_OF_BLOCKS)
        result = intrinsic(b, "trunc", b.fmul(to_float64(b, column), up))
        for term in terms:
            result = b.fadd(result, intrinsic(b, "trunc", b.fmul(term, up)))
        b.store(truncate_significand(b, b.fmul(result, down), SIGNIFICAND), column_pointer, align=4)
    return [b.load(b.gep(columns, [I32(n)], source_etype=numbers_of), typ=numbers_of, align=4) for n in range(8)]


def fold(b: LaneBuilder, count: int, first: Value, step: Callable[[Value, Value], Value]) -> Value:
    """Emit a loop that starts with ``first``; ``step`` gets the iteration, from 0, and the present value."""
    before = b.block
    body = b.append_basic_block()
    after = b.append_basic_block()
    b.branch(body)
    b.position_at_end(body)
    iteration = b.phi(I32)
    value = b.phi(first.type)
    result = step(iteration, value)
    following = b.add(iteration, I32(1))
    for phi, initial, next_value in ((iteration, I32(0), following), (value, first, result)):
        phi.add_incoming(initial, before)
        phi.add_incoming(next_value, body)
    b.cbranch(b.icmp_unsigned("<", following, I32(count)), body, after)
    b.position_at_end(after)
    return result


def pair(
    b: LaneBuilder,
    factors: Value,
    a_offset: int,
    b_numbers: Value,
    b_offset: int,
    steps: tuple[int, int],
    n: Value,
    k: Value,
    vector: ir.VectorType,
) -> tuple[Value, Value]:
    """Return A's column for k, and the number of B in column n broadcast, at offsets ``a_offset`` and ``b_offset``."""
    from_a = b.load(b.gep(b.at(factors, a_offset), [b.mul(k, I32(ROW_BYTES))], source_etype=I8), typ=vector, align=4)
    b_index = b.add(b.mul(n, I32(steps[0])), b.mul(k, I32(steps[1])))
    from_b = b.load(b.gep(b.at(b_numbers, b_offset), [b_index], source_etype=vector.element), typ=vector.element)
    return from_a, spread(b, from_b, vector)


def store_numbers(b: LaneBuilder, values: Value, kind: str, memory: Value, offset: Value, exponent_offset: int) -> None:
    """Store numbers, and their powers of two ``exponent_offset`` bytes after them."""
    b.store(values, b.gep(memory, [offset], source_etype=I8), align=4)
    if kind in LEAST_EXPONENT:
        exponents = powers(b, values, LEAST_EXPONENT[kind])
        b.store(exponents, b.gep(b.at(memory, exponent_offset), [offset], source_etype=I8), align=4)


def allocate_numbers(b: LaneBuilder, count: int) -> Value:
    """Allocate ``count`` numbers of 32 bits on the stack."""
    return b.inttoptr(b.ptrtoint(b.alloca_in_entry(ir.ArrayType(I32, count)), I64), POINTER)
