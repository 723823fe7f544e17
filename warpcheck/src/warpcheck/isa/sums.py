"""How wgmma adds products to D, 16 rows of a column at a time.

Integers are added as they are. Floats are added as an H200 adds them, which no manual tells: products are exact, but
all of them and the number in D are cut to a multiple of 2**-25 of the largest power of two among them, of 2**-13 where
A and B have 8 bits; their sum is cut to the 24 bits of a float32, or to 14. The power of two of a product is that of
its factors.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from warpcheck.isa.matrix import count_to, multiply_add, spread
from warpcheck.isa.values import F32, F64, Value, constant, intrinsic
from warpcheck.lower.vectors import I8, I32, I64, POINTER
from warpcheck.lower.warp import Lowering

__all__ = ["EXPONENTS", "LEAST", "ROWS", "ROW_BYTES", "add_floats", "add_integers", "keep", "room"]

ROWS = 16  # that a warp has of D and A
ROW_BYTES = 4 * ROWS
EXPONENTS = 2048  # bytes from A as numbers to their powers of two
LEAST = {"f16": -14, "bf16": -126, "tf32": -126, "e4m3": -6, "e5m2": -14}  # power of two of a number that is not 0
NOUGHT = -2000  # that of 0: no sum is less


def add_integers(
    e: Lowering, factors: Value, space: Value, depth: int, steps: tuple[int, int], sums: list[Value]
) -> list[Value]:
    """The sums of 8 columns, with every k added in turn."""
    b = e.b
    vector = sums[0].type
    number = sums[0].type.element
    before = b.block
    body = b.append_basic_block()
    after = b.append_basic_block()
    b.branch(body)
    b.position_at_end(body)
    k, *columns = (b.phi(kind) for kind in (I32, *[vector] * 8))
    mine = b.load(b.gep(factors, [b.mul(k, I32(ROW_BYTES))], source_etype=I8), typ=vector, align=4)
    following = []
    for n, column in enumerate(columns):
        place = b.add(b.mul(k, I32(steps[1])), I32(n * steps[0]))
        factor = b.load(b.gep(space, [place], source_etype=number), typ=number)
        following.append(multiply_add(e, mine, spread(e, factor, vector), column))
    turn = b.add(k, I32(1))
    for phi, first, again in zip((k, *columns), (I32(0), *sums), (turn, *following), strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(again, body)
    b.cbranch(b.icmp_unsigned("<", turn, I32(depth)), body, after)
    b.position_at_end(after)
    return following


def add_floats(
    e: Lowering,
    factors: Value,
    space: Value,
    depth: int,
    steps: tuple[int, int],
    given: list[Value],
    fraction: int,
    kept: int,
) -> list[Value]:
    """The sums of 8 columns, cut to ``kept`` bits; their terms are cut ``fraction`` bits behind the largest."""
    b = e.b
    columns = room(e, 8 * ROWS)
    for n, column in enumerate(given):
        b.store(column, b.gep(columns, [I32(n)], source_etype=column.type), align=4)
    numbers_of = ir.VectorType(F32, ROWS)
    powers_of = ir.VectorType(I32, ROWS)
    with count_to(e, 8) as n:
        place = b.gep(columns, [n], source_etype=numbers_of)
        column = b.load(place, typ=numbers_of, align=4)

        def largest(k: Value, power: Value) -> Value:
            mine, other = pair(e, factors, EXPONENTS, space, 32 * depth, steps, n, k, powers_of)
            return intrinsic(e, "smax", power, e.b.add(mine, other))

        power = fold(e, depth, powers(e, column, -126), largest)
        power = intrinsic(e, "smax", power, constant(power, -900))
        up, down = (power_of_two(e, number) for number in (negative(e, power, fraction), offset(e, power, -fraction)))

        def add(k: Value, total: Value) -> Value:
            mine, other = (wide(e, v) for v in pair(e, factors, 0, space, 0, steps, n, k, numbers_of))
            return e.b.fadd(total, intrinsic(e, "trunc", e.b.fmul(e.b.fmul(mine, other), up)))

        total = fold(e, depth, intrinsic(e, "trunc", b.fmul(wide(e, column), up)), add)
        bits = b.bitcast(b.fmul(total, down), ir.VectorType(I64, ROWS))
        bits = b.and_(bits, constant(bits, -1 << 52 - kept))
        b.store(b.fptrunc(b.bitcast(bits, total.type), numbers_of), place, align=4)
    return [b.load(b.gep(columns, [I32(n)], source_etype=numbers_of), typ=numbers_of, align=4) for n in range(8)]


def fold(e: Lowering, count: int, first: Value, step: Callable[[Value, Value], Value]) -> Value:
    """What a loop makes of ``first``: ``step`` is given the number of the turn, from 0, and what there is so far."""
    before = e.b.block
    body = e.b.append_basic_block()
    after = e.b.append_basic_block()
    e.b.branch(body)
    e.b.position_at_end(body)
    turn = e.b.phi(I32)
    value = e.b.phi(first.type)
    result = step(turn, value)
    following = e.b.add(turn, I32(1))
    for phi, start, again in ((turn, I32(0), following), (value, first, result)):
        phi.add_incoming(start, before)
        phi.add_incoming(again, body)
    e.b.cbranch(e.b.icmp_unsigned("<", following, I32(count)), body, after)
    e.b.position_at_end(after)
    return result


def pair(
    e: Lowering,
    factors: Value,
    first: int,
    space: Value,
    second: int,
    steps: tuple[int, int],
    n: Value,
    k: Value,
    vector: ir.VectorType,
) -> tuple[Value, Value]:
    """A's row of a k, and the number of B in column n, in all lanes: those ``first`` and ``second`` bytes on."""
    mine = e.b.load(e.b.gep(e.at(factors, first), [e.b.mul(k, I32(ROW_BYTES))], source_etype=I8), typ=vector, align=4)
    place = e.b.add(e.b.mul(n, I32(steps[0])), e.b.mul(k, I32(steps[1])))
    other = e.b.load(e.b.gep(e.at(space, second), [place], source_etype=vector.element), typ=vector.element)
    return mine, spread(e, other, vector)


def keep(e: Lowering, values: Value, kind: str, memory: Value, place: Value, behind: int) -> None:
    """Store numbers, and so many bytes behind them their powers of two."""
    e.b.store(values, e.b.gep(memory, [place], source_etype=I8), align=4)
    if kind in LEAST:
        exponents = powers(e, values, LEAST[kind])
        e.b.store(exponents, e.b.gep(e.at(memory, behind), [place], source_etype=I8), align=4)


def powers(e: Lowering, values: Value, least: int) -> Value:
    """The power of two of each float32, and of those that are subnormal in their own type the least."""
    bits = e.b.bitcast(values, ir.VectorType(I32, values.type.count))
    field = e.b.and_(e.b.lshr(bits, constant(bits, 23)), constant(bits, 255))
    power = intrinsic(e, "smax", offset(e, field, -127), constant(bits, least))
    is_zero = e.b.fcmp_ordered("==", values, constant(values, 0.0))
    return e.b.select(is_zero, constant(bits, NOUGHT), power)


def power_of_two(e: Lowering, power: Value) -> Value:
    """As float64."""
    bits = e.resize(offset(e, power, 1023), 64)
    return e.b.bitcast(e.b.shl(bits, constant(bits, 52)), ir.VectorType(F64, power.type.count))


def offset(e: Lowering, power: Value, more: int) -> Value:
    return e.b.add(power, constant(power, more))


def negative(e: Lowering, power: Value, more: int) -> Value:
    return e.b.sub(constant(power, more), power)


def wide(e: Lowering, values: Value) -> Value:
    return e.b.fpext(values, ir.VectorType(F64, values.type.count))


def room(e: Lowering, count: int) -> Value:
    """Space for so many numbers of 32 bits."""
    return e.b.inttoptr(e.b.ptrtoint(e.room(ir.ArrayType(I32, count)), I64), POINTER)
