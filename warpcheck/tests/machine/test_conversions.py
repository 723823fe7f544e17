"""Conversions and comparisons, against numpy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from machine import exact
from machine.instructions import COUNT, TYPES, check, execute, wrapped
from machine.launching import aligned
from warpcheck.errors import Rejected


def flushed(value: Any) -> float:
    return exact.flushed(float(value), "f32")


@pytest.mark.parametrize(("mode", "rule"), [("rni", np.rint), ("rzi", np.trunc), ("rmi", np.floor), ("rpi", np.ceil)])
@pytest.mark.parametrize("to", ["s32", "u32", "s16", "s64"])
def test_float_to_integer_rounds_and_clamps(mode: str, rule: Callable[..., Any], to: str) -> None:
    info = np.iinfo(TYPES[to])

    def expected(a: float) -> int:
        if math.isnan(a):
            return wrapped(1 << 63, 64, True) if to == "s64" else 0
        if math.isinf(a):
            return info.max if a > 0 else info.min
        return min(max(int(rule(np.float64(a))), info.min), info.max)

    check(f"cvt.{mode}.{to}.f32", "f32", to, expected)


def half_toward_zero(value: int) -> float:
    size = min(abs(int(value)), 65504)
    drop = max(size.bit_length() - 11, 0)
    return math.copysign(size >> drop << drop, value)


def test_conversions() -> None:
    check("cvt.rn.f32.s32", "s32", "f32", np.float32)
    check("cvt.rn.f32.u64", "u64", "f32", np.float32)
    check("cvt.rn.f16.f32", "f32", "f16", np.float16)
    check("cvt.rn.f16.s32", "s32", "f16", np.float16)
    check("cvt.rz.f16.s32", "s32", "f16", half_toward_zero)
    check("cvt.f32.f16", "f16", "f32", np.float32)
    check("cvt.rn.f32.f64", "f64", "f32", np.float32)
    check("cvt.f64.f32", "f32", "f64", np.float64)
    check("cvt.rni.f32.f32", "f32", "f32", np.rint)
    check("cvt.rzi.ftz.f32.f32", "f32", "f32", lambda a: np.trunc(np.float32(flushed(a))))
    check("cvt.rn.ftz.f32.f64", "f64", "f32", lambda a: flushed(np.float32(a)))
    check("cvt.ftz.f64.f32", "f32", "f64", lambda a: np.float64(flushed(a)))
    check("cvt.s64.s32", "s32", "s64", int)
    check("cvt.u64.u32", "u32", "u64", int)
    check("cvt.u16.u32", "u32", "u16", lambda a: int(a) & 0xFFFF)
    check("cvt.sat.s16.s32", "s32", "s16", lambda a: min(max(int(a), -32768), 32767))
    check("cvt.sat.u16.s32", "s32", "u16", lambda a: min(max(int(a), 0), 65535))


NEAR_A_TIE = [sign * ((1 << 62) + (1 << place) + step) for sign in (1, -1) for place in (51, 54) for step in (-1, 0, 1)]


@pytest.mark.parametrize(("to", "digits"), [("bf16", 8), ("f32", 24)])
def test_integers_beyond_float64_are_rounded_once(to: str, digits: int) -> None:
    """Half a unit of bfloat16 above 2^62 is 2^54, which is also a multiple of the unit of float64, 2^10."""
    array = aligned(COUNT, np.int64)
    array[: len(NEAR_A_TIE)] = NEAR_A_TIE
    result = "bf16" if to == "bf16" else "f32"
    bits = execute(f"cvt.rn.{to}.s64", ["s64"], result, [array], "sm_90a")[: len(NEAR_A_TIE)]
    got = bits.view(np.float32) if to == "f32" else (bits.astype(np.uint32) << 16).view(np.float32)
    unit = 1 << 63 - digits  # of numbers from 2^62 on
    for value, rounded in zip(NEAR_A_TIE, got, strict=True):
        quotient, remainder = divmod(abs(value), unit)
        quotient += 2 * remainder > unit or (2 * remainder == unit and quotient % 2)
        assert abs(int(rounded)) == quotient * unit, value


@pytest.mark.parametrize("kind", ["f32", "s32", "u32"])
def test_comparisons(kind: str) -> None:
    rules = {
        "eq": np.equal,
        "ne": np.not_equal,
        "lt": np.less,
        "le": np.less_equal,
        "gt": np.greater,
        "ge": np.greater_equal,
    }
    for name, rule in rules.items():
        ordered = lambda a, b, rule=rule, name=name: int(rule(a, b) and not (name == "ne" and (a != a or b != b)))  # noqa: E731
        text = f"{{.reg .pred %p; setp.{name}.{kind} %p, {{0}}, {{1}}; selp.b32 {{d}}, 1, 0, %p;}}"
        check(text.replace("{.", ".", 1).removesuffix("}"), f"{kind} {kind}", "u32", ordered)


def test_unordered_comparisons_hold_for_nan() -> None:
    for name, rule in {"ltu": np.less, "geu": np.greater_equal, "equ": np.equal, "neu": np.not_equal}.items():
        text = f".reg .pred %p; setp.{name}.f32 %p, {{0}}, {{1}}; selp.b32 {{d}}, 1, 0, %p;"
        either = lambda a, b, rule=rule: int(rule(a, b) or a != a or b != b)  # noqa: E731
        check(text, "f32 f32", "u32", either)


def test_both_predicates_of_a_comparison_read_the_third_source_first() -> None:
    text = (
        ".reg .pred %p; .reg .pred %q; .reg .b32 %x; setp.ne.s32 %p, {1}, 0; setp.lt.or.s32 %p|%q, {0}, {1}, %p;"
        "selp.b32 {d}, 1, 0, %p; selp.b32 %x, 2, 0, %q; add.s32 {d}, {d}, %x;"
    )
    check(text, "s32 s32", "s32", lambda a, b: int(a < b or b != 0) + 2 * int(not a < b or b != 0))


@pytest.mark.parametrize(
    ("given", "rounded"),
    [(0x3F801000, 0x3F802000), (0x3F800FFF, 0x3F800000), (0xBF801000, 0xBF802000), (0xFFC01FFF, 0xFFC00000)],
)
def test_tf32_is_rounded_away_from_zero(given: int, rounded: int) -> None:
    """And an H200 cuts a NaN as it cuts a number."""
    array = aligned(COUNT, np.uint32)
    array[:] = given
    got = execute("cvt.rna.tf32.f32 {d}, {0};", ["f32"], "b32", [array.view(np.float32)])
    assert set(got.tolist()) == {rounded}


@pytest.mark.parametrize("register", [".f32", ".u32"])
def test_a_tf32_lies_in_a_register_without_a_type(register: str) -> None:
    """In the words of ptxas."""
    with pytest.raises(Rejected, match="Arguments mismatch for instruction 'cvt'"):
        execute(
            f".reg {register} %t; cvt.rna.tf32.f32 %t, {{0}}; mov.b32 {{d}}, %t;",
            ["f32"],
            "b32",
            [aligned(COUNT, np.float32)],
        )
