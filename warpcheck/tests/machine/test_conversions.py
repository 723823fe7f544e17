"""Compare conversions and comparisons with numpy."""

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


def flush(value: Any) -> float:
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
    """Round an integer toward zero to the 11 significant bits of a half."""
    magnitude = min(abs(int(value)), 65504)
    dropped_bits = max(magnitude.bit_length() - 11, 0)
    return math.copysign(magnitude >> dropped_bits << dropped_bits, value)


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
    check("cvt.rzi.ftz.f32.f32", "f32", "f32", lambda a: np.trunc(np.float32(flush(a))))
    check("cvt.rn.ftz.f32.f64", "f64", "f32", lambda a: flush(np.float32(a)))
    check("cvt.ftz.f64.f32", "f32", "f64", lambda a: np.float64(flush(a)))
    check("cvt.s64.s32", "s32", "s64", int)
    check("cvt.u64.u32", "u32", "u64", int)
    check("cvt.u16.u32", "u32", "u16", lambda a: int(a) & 0xFFFF)
    check("cvt.sat.s16.s32", "s32", "s16", lambda a: min(max(int(a), -32768), 32767))
    check("cvt.sat.u16.s32", "s32", "u16", lambda a: min(max(int(a), 0), 65535))


NEAR_TIES = [
    sign * ((1 << 62) + (1 << exponent) + step) for sign in (1, -1) for exponent in (51, 54) for step in (-1, 0, 1)
]


@pytest.mark.parametrize(("to", "digits"), [("bf16", 8), ("f32", 24)])
def test_integers_beyond_float64_are_rounded_once(to: str, digits: int) -> None:
    """Half a bfloat16 unit above 2^62 is 2^54, a multiple of float64's unit there, 2^10. Rounding twice would show."""
    array = aligned(COUNT, np.int64)
    array[: len(NEAR_TIES)] = NEAR_TIES
    result = "bf16" if to == "bf16" else "f32"
    bits = execute(f"cvt.rn.{to}.s64", ["s64"], result, [array], "sm_90a")[: len(NEAR_TIES)]
    got = bits.view(np.float32) if to == "f32" else (bits.astype(np.uint32) << 16).view(np.float32)
    unit = 1 << 63 - digits  # of numbers from 2^62 on
    for value, rounded in zip(NEAR_TIES, got, strict=True):
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
        holds = lambda a, b, rule=rule, name=name: int(rule(a, b) and not (name == "ne" and (a != a or b != b)))  # noqa: E731
        text = f"{{.reg .pred %p; setp.{name}.{kind} %p, {{0}}, {{1}}; selp.b32 {{d}}, 1, 0, %p;}}"
        check(text.replace("{.", ".", 1).removesuffix("}"), f"{kind} {kind}", "u32", holds)


def test_unordered_comparisons_hold_for_nan() -> None:
    for name, rule in {"ltu": np.less, "geu": np.greater_equal, "equ": np.equal, "neu": np.not_equal}.items():
        text = f".reg .pred %p; setp.{name}.f32 %p, {{0}}, {{1}}; selp.b32 {{d}}, 1, 0, %p;"
        holds = lambda a, b, rule=rule: int(rule(a, b) or a != a or b != b)  # noqa: E731
        check(text, "f32 f32", "u32", holds)


def test_setp_reads_its_third_source_before_writing_either_predicate() -> None:
    text = (
        ".reg .pred %p; .reg .pred %q; .reg .b32 %x; setp.ne.s32 %p, {1}, 0; setp.lt.or.s32 %p|%q, {0}, {1}, %p;"
        "selp.b32 {d}, 1, 0, %p; selp.b32 %x, 2, 0, %q; add.s32 {d}, {d}, %x;"
    )
    check(text, "s32 s32", "s32", lambda a, b: int(a < b or b != 0) + 2 * int(not a < b or b != 0))


@pytest.mark.parametrize(
    ("source_bits", "rounded"),
    [(0x3F801000, 0x3F802000), (0x3F800FFF, 0x3F800000), (0xBF801000, 0xBF802000), (0xFFC01FFF, 0xFFC00000)],
)
def test_tf32_ties_are_rounded_away_from_zero(source_bits: int, rounded: int) -> None:
    """An H200 also truncates the payload of a NaN."""
    array = aligned(COUNT, np.uint32)
    array[:] = source_bits
    got = execute("cvt.rna.tf32.f32 {d}, {0};", ["f32"], "b32", [array.view(np.float32)])
    assert set(got.tolist()) == {rounded}


@pytest.mark.parametrize("register", [".f32", ".u32"])
def test_a_tf32_needs_an_untyped_register(register: str) -> None:
    """ptxas rejects a typed register with the same words."""
    with pytest.raises(Rejected, match="Arguments mismatch for instruction 'cvt'"):
        execute(
            f".reg {register} %t; cvt.rna.tf32.f32 %t, {{0}}; mov.b32 {{d}}, %t;",
            ["f32"],
            "b32",
            [aligned(COUNT, np.float32)],
        )
