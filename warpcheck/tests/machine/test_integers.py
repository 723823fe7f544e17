"""Compare integer arithmetic, logic, and bit fields with numpy and Python's integers."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from machine.instructions import bits, check, wrapped

INTEGERS: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul.lo": lambda a, b: a * b,
    "min": min,
    "max": max,
}


@pytest.mark.parametrize("kind", ["u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("name", INTEGERS)
def test_integer_arithmetic(name: str, kind: str) -> None:
    rule = INTEGERS[name]
    check(
        f"{name}.{kind}", f"{kind} {kind}", kind, lambda a, b: wrapped(rule(int(a), int(b)), bits(kind), kind[0] == "s")
    )


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_mul_hi_returns_the_high_half(kind: str) -> None:
    width = bits(kind)
    check(
        f"mul.hi.{kind}", f"{kind} {kind}", kind, lambda a, b: wrapped(int(a) * int(b) >> width, width, kind[0] == "s")
    )


def test_wide_multiplication() -> None:
    check("mad.wide.s32", "s32 s32 s64", "s64", lambda a, b, c: wrapped(int(a) * int(b) + int(c), 64, True))
    check("mul.wide.u32", "u32 u32", "u64", lambda a, b: int(a) * int(b))


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_division_truncates(kind: str) -> None:
    def quotient(a: int, b: int) -> int:
        a, b = int(a), int(b)
        if b == 0:
            return wrapped(-1, bits(kind), kind[0] == "s")
        return wrapped(abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1), bits(kind), kind[0] == "s")

    def remainder(a: int, b: int) -> int:
        return (
            int(a)
            if b == 0
            else int(math.fmod(int(a), int(b)))
            if abs(int(a)) < 1 << 50
            else int(a) - int(b) * quotient(a, b)
        )

    check(f"div.{kind}", f"{kind} {kind}", kind, quotient)
    check(f"rem.{kind}", f"{kind} {kind}", kind, lambda a, b: wrapped(remainder(a, b), bits(kind), kind[0] == "s"))


@pytest.mark.parametrize(("kind", "signed"), [("u32", False), ("s32", True), ("u64", False), ("s64", True)])
def test_shifts_clamp_their_amount(kind: str, signed: bool) -> None:
    width = bits(kind)
    shift_left = lambda a, n: wrapped(int(a) << min(int(n), width), width, signed)  # noqa: E731
    shift_right = lambda a, n: wrapped(int(a) >> min(int(n), width), width, signed)  # noqa: E731
    check(f"shl.b{width}", f"{kind} u32", kind, shift_left)
    check(f"shr.{kind}", f"{kind} u32", kind, shift_right)


def test_bit_instructions() -> None:
    check("popc.b32", "u32", "u32", lambda a: int(a).bit_count())
    check("popc.b64", "u64", "u32", lambda a: int(a).bit_count())
    check("clz.b32", "u32", "u32", lambda a: 32 - int(a).bit_length())
    check("brev.b32", "u32", "u32", lambda a: int(f"{int(a):032b}"[::-1], 2))
    check("bfind.u32", "u32", "u32", lambda a: (int(a).bit_length() - 1) & 0xFFFFFFFF)
    check("bfind.s32", "s32", "u32", lambda a: (int(~a if a < 0 else a).bit_length() - 1) & 0xFFFFFFFF)
    check("cnot.b32", "u32", "u32", lambda a: int(a == 0))
    check("not.b16", "u16", "u16", lambda a: ~a)
    check("shf.l.wrap.b32 {d}, {0}, {1}, 40;", "u32 u32", "u32", lambda a, b: (int(b) << 8 | int(a) >> 24) & 0xFFFFFFFF)
    check("shf.r.clamp.b32 {d}, {0}, {1}, 40;", "u32 u32", "u32", lambda a, b: b)


@pytest.mark.parametrize(("base", "offset"), [(0, 1), (3, 2), (31, -1), (31, -32), (20, -3), (9, 0), (0, 32), (0, 33)])
def test_position_of_the_nth_set_bit(base: int, offset: int) -> None:
    def position(mask: int) -> int:
        """Execute the loop in the manual's section on fns."""
        remaining = max(abs(offset), 1)
        bit = base
        while 0 <= bit < 32:
            remaining -= int(mask) >> bit & 1
            if not remaining:
                return bit
            if not offset:
                break
            bit += 1 if offset > 0 else -1
        return 0xFFFFFFFF

    check(f"fns.b32 {{d}}, {{0}}, {base}, {offset};", "u32", "u32", position)


@pytest.mark.parametrize("table", [0x80, 0xFE, 0x96, 0xCA, 0x1B])
def test_lop3(table: int) -> None:
    def expected(a: int, b: int, c: int) -> int:
        rows = [row for row in range(8) if table >> row & 1]
        terms = [(a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c) for row in rows]
        return int(np.bitwise_or.reduce(terms))

    check(f"lop3.b32 {{d}}, {{0}}, {{1}}, {{2}}, {table};", "u32 u32 u32", "u32", expected)


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
@pytest.mark.parametrize(("start", "length"), [(0, 8), (5, 7), (28, 8), (31, 1), (0, 32), (40, 4), (3, 0)])
def test_bit_field_extract(kind: str, start: int, length: int) -> None:
    width = bits(kind)

    def extract(a: int) -> int:
        """Extract a bit field as the manual's pseudocode for bfe does, bit by bit."""
        a = int(a) & (1 << width) - 1
        sign = 0
        if kind[0] == "s" and length:
            sign = a >> min(start + length - 1, width - 1) & 1
        value = 0
        for bit in range(width):
            is_inside = bit < length and start + bit < width
            value |= (a >> start + bit & 1 if is_inside else sign) << bit
        return wrapped(value, width, kind[0] == "s")

    check(f"bfe.{kind} {{d}}, {{0}}, {start}, {length};", kind, kind, extract)


@pytest.mark.parametrize(("start", "length"), [(0, 8), (5, 7), (28, 8), (31, 1), (0, 32), (40, 4), (3, 0)])
def test_bit_field_insert(start: int, length: int) -> None:
    mask = ((1 << length) - 1) << start & 0xFFFFFFFF
    expected = lambda a, b: int(a) << start & mask | int(b) & ~mask & 0xFFFFFFFF  # noqa: E731
    check(f"bfi.b32 {{d}}, {{0}}, {{1}}, {start}, {length};", "u32 u32", "u32", expected)


@pytest.mark.parametrize("selector", [0x3210, 0x7654, 0x5410, 0x0123, 0xFA98, 0x8888])
def test_byte_permute(selector: int) -> None:
    def expected(a: int, b: int) -> int:
        source_bytes = (int(a) | int(b) << 32).to_bytes(8, "little")
        nibbles = [selector >> 4 * n & 15 for n in range(4)]
        return int.from_bytes(
            [(source_bytes[c & 7] >> 7) * 255 if c & 8 else source_bytes[c] for c in nibbles], "little"
        )

    check(f"prmt.b32 {{d}}, {{0}}, {{1}}, {selector};", "u32 u32", "u32", expected)


def test_dot_product_of_bytes() -> None:
    def expected(a: int, b: int, c: int) -> int:
        pairs = zip(int(a).to_bytes(4, "little", signed=True), int(b).to_bytes(4, "little", signed=True), strict=True)
        signed = [(wrapped(x, 8, True), wrapped(y, 8, True)) for x, y in pairs]
        return wrapped(int(c) + sum(x * y for x, y in signed), 32, True)

    check("dp4a.s32.s32", "s32 s32 s32", "s32", expected)


def test_carry_chain_adds_128_bits() -> None:
    text = ".reg .b64 %t; add.cc.u64 %t, {0}, {1}; addc.u64 {d}, {0}, {1};"
    check(text, "u64 u64", "u64", lambda a, b: (int(a) + int(b) + (int(a) + int(b) >> 64)) & (1 << 64) - 1)


@pytest.mark.parametrize("kind", ["u32", "s32"])
def test_24_bit_multiplication(kind: str) -> None:
    signed = kind[0] == "s"

    def product(a: int, b: int) -> int:
        return wrapped(int(a), 24, signed) * wrapped(int(b), 24, signed)

    check(f"mul24.lo.{kind}", f"{kind} {kind}", kind, lambda a, b: wrapped(product(a, b), 32, signed))
    check(f"mul24.hi.{kind}", f"{kind} {kind}", kind, lambda a, b: wrapped(product(a, b) >> 16, 32, signed))
    check(
        f"mad24.lo.{kind}", f"{kind} {kind} {kind}", kind, lambda a, b, c: wrapped(product(a, b) + int(c), 32, signed)
    )


def test_borrow_chain_subtracts_192_bits() -> None:
    def highest(a: int, b: int) -> int:
        return (int(a) - int(b) - (int(b) - int(a) - (int(a) < int(b)) < 0)) % (1 << 64)

    text = ".reg .b64 %t; sub.cc.u64 %t, {0}, {1}; subc.cc.u64 %t, {1}, {0}; subc.u64 {d}, {0}, {1};"
    check(text, "u64 u64", "u64", highest)
