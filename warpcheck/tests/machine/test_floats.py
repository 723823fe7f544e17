"""Compare float arithmetic bit for bit where it is correctly rounded, and within the manual's bounds elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from machine import exact
from machine.instructions import COUNT, RNG, TYPES, check, equal_bits, execute
from machine.launching import aligned


def flush(value: Any) -> float:
    return exact.flushed(float(value), "f32")


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_float_arithmetic(kind: str) -> None:
    number = TYPES[kind]
    check(f"add.{kind}", f"{kind} {kind}", kind, lambda a, b: number(a + b))
    check(f"sub.{kind}", f"{kind} {kind}", kind, lambda a, b: number(a - b))
    check(f"mul.{kind}", f"{kind} {kind}", kind, lambda a, b: number(a * b))
    check(f"div.rn.{kind}", f"{kind} {kind}", kind, lambda a, b: number(a / b))
    check(f"sqrt.rn.{kind}", kind, kind, np.sqrt)
    check(f"neg.{kind}", kind, kind, lambda a: -a)
    check(f"abs.{kind}", kind, kind, abs)


def test_fused_multiply_add_rounds_once() -> None:
    check("fma.rn.f32", "f32 f32 f32", "f32", lambda a, b, c: exact.fused(float(a), float(b), float(c), "f32", "rn"))


def test_min_and_max_ignore_nan_and_order_zeros() -> None:
    check("min.f32", "f32 f32", "f32", lambda a, b: exact.extreme(float(a), float(b), True, ()))
    check("max.f32", "f32 f32", "f32", lambda a, b: exact.extreme(float(a), float(b), False, ()))
    check("max.NaN.f32", "f32 f32", "f32", lambda a, b: exact.extreme(float(a), float(b), False, ("NaN",)))


def test_flush_to_zero() -> None:
    check("add.ftz.f32", "f32 f32", "f32", lambda a, b: flush(np.float32(flush(a)) + np.float32(flush(b))))
    check("mul.f32", "f32 f32", "f32", lambda a, b: np.float32(a) * np.float32(b))


@pytest.mark.parametrize(
    ("instruction", "x", "y", "expected"),
    [
        ("mul.ftz.f32", 1 - 2.0**-24, 2.0**-126, 0.0),
        ("mul.ftz.f32", 2.0**-63, 2.0**-63 * (1 - 2.0**-24), 0.0),
        ("mul.ftz.f32", -0.5, 2.0**-125, -(2.0**-126)),
        ("mul.rp.ftz.f32", 1 - 2.0**-24, 2.0**-126, 0.0),
        ("mul.rz.ftz.f32", 1 - 2.0**-24, -(2.0**-126), -0.0),
        ("div.rn.ftz.f32", 1 - 2.0**-24, 2.0**126, 0.0),
        ("div.approx.ftz.f32", 1 - 2.0**-24, 2.0**126, 0.0),
        ("fma.rn.ftz.f32 {d}, {0}, {1}, 0f00000000;", 1 - 2.0**-24, 2.0**-126, 0.0),
        ("fma.rp.ftz.f32 {d}, {0}, {1}, 0f80000000;", 2.0**-63, 2.0**-63 * (1 - 2.0**-24), 0.0),
        ("mul.f32", 1 - 2.0**-24, 2.0**-126, 2.0**-126),
        ("mul.ftz.f32", 2.0**100, 2.0**100, math.inf),
    ],
)
def test_results_just_below_the_smallest_normal_number_are_flushed(
    instruction: str, x: float, y: float, expected: float
) -> None:
    """An H200 returns 0 although the result rounds to the smallest normal number."""
    arrays = [aligned(COUNT), aligned(COUNT)]
    arrays[0][:] = x
    arrays[1][:] = y
    (got,) = set(execute(instruction, ["f32", "f32"], "f32", arrays).view(np.uint32).tolist())
    assert got == int(np.float32(expected).view(np.uint32))


def test_conversions_just_below_the_smallest_normal_float_are_flushed() -> None:
    array = aligned(COUNT, np.float64)
    array[:3] = (1 - 2.0**-24) * 2.0**-126, (1 - 2.0**-46) * 2.0**-126, -(2.0**-127)
    got = execute("cvt.rn.ftz.f32.f64", ["f64"], "f32", [array])
    assert got[:3].tolist() == [0.0, 2.0**-126, 0.0]


def test_saturation_clamps_to_0_and_1() -> None:
    check("add.sat.f32", "f32 f32", "f32", lambda a, b: 0.0 if math.isnan(a + b) else min(max(a + b, 0.0), 1.0) or 0.0)


@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "fma", "div"])
def test_directed_rounding(name: str, mode: str) -> None:
    """The samples include sums of 1 and 1e-40, which float64 can't represent."""
    rule = exact.rule(name, (mode, "f32"))
    assert rule is not None
    kinds = " ".join(rule.sources)
    check(f"{name}.{mode}.f32", kinds, "f32", lambda *values: rule.apply(*map(float, values)))


@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
def test_directed_rounding_of_square_roots(mode: str) -> None:
    def expected(a: float) -> float:
        if not (0 < float(a) < math.inf):
            return float(np.sqrt(a))
        root = np.float32(math.sqrt(float(a)))
        error = Fraction(float(root)) ** 2 - Fraction(float(a))
        is_beyond = error < 0 if mode == "rp" else error > 0
        return float(np.nextafter(root, np.float32(math.inf if mode == "rp" else 0))) if is_beyond else float(root)

    check(f"sqrt.{mode}.f32", "f32", "f32", expected)


# For each instruction: the exact function, and the relative and absolute error that the manual allows.
APPROXIMATIONS: dict[str, tuple[Callable[..., Any], float, float]] = {
    "rcp.approx.ftz.f32": (lambda x: 1 / x, 2.0**-23, 0),
    "sqrt.approx.f32": (np.sqrt, 2.0**-23, 0),
    "rsqrt.approx.f32": (lambda x: 1 / np.sqrt(x), 2.0**-22.9, 0),
    "ex2.approx.f32": (np.exp2, 2.0**-22.5, 0),
    "lg2.approx.f32": (np.log2, 2.0**-22, 2.0**-22),
    "sin.approx.f32": (np.sin, 0, 2.0**-20.5),
    "cos.approx.f32": (np.cos, 0, 2.0**-20.5),
    "tanh.approx.f32": (np.tanh, 2.0**-11, 0),
}


@pytest.mark.parametrize("name", APPROXIMATIONS)
def test_approximations(name: str) -> None:
    exact, relative, absolute = APPROXIMATIONS[name]
    x = aligned(COUNT)
    x[...] = RNG.uniform(-3, 3, COUNT)
    if name.split(".")[0] in ("sqrt", "rsqrt", "lg2"):
        x[...] = abs(x)
    want = exact(x.astype(np.float64))
    got = execute(name, ["f32"], "f32", [x])
    assert (abs(got - want) <= relative * abs(want) + absolute + 2.0**-149).all()


@pytest.mark.parametrize(
    ("name", "arguments", "values"),
    [
        ("ex2.approx.f32", [math.inf, -math.inf, math.nan, 0, -0.0, -149], [math.inf, 0, math.nan, 1, 1, 2.0**-149]),
        ("ex2.approx.ftz.f32", [-149, -130, 1e-40], [0, 0, 1]),
        ("lg2.approx.f32", [0, -0.0, math.inf, -1, 1, 8], [-math.inf, -math.inf, math.inf, math.nan, 0, 3]),
        ("rcp.approx.ftz.f32", [0, -0.0, math.inf, 1e-40, 2], [math.inf, -math.inf, 0, math.inf, 0.5]),
        ("rsqrt.approx.f32", [0, -0.0, math.inf, -1, 4], [math.inf, -math.inf, 0, math.nan, 0.5]),
        ("tanh.approx.f32", [math.inf, -math.inf, 0, -0.0, 20], [1, -1, 0, -0.0, 1]),
        ("sin.approx.f32", [0, -0.0, math.inf], [0, -0.0, math.nan]),
    ],
)
def test_approximations_of_special_values(name: str, arguments: list[float], values: list[float]) -> None:
    x = aligned(COUNT)
    x[: len(arguments)] = arguments
    assert equal_bits(execute(name, ["f32"], "f32", [x])[: len(arguments)], np.array(values, np.float32))


# Quiet and signaling NaNs of float32, of both signs.
NANS = [0x7FC00001, 0xFFC12345, 0x7F800001, 0x7FFFFFFF, 0xFF800002]


@pytest.mark.parametrize(
    ("instruction", "sources"),
    [
        ("add.f32", 2),
        ("add.rz.f32", 2),
        ("sub.ftz.f32", 2),
        ("mul.f32", 2),
        ("div.rn.f32", 2),
        ("fma.rn.f32", 3),
        ("fma.rn.ftz.f32", 3),
        ("min.f32", 2),
        ("max.NaN.f32", 2),
        ("sqrt.rn.f32", 1),
        ("rcp.approx.ftz.f32", 1),
        ("ex2.approx.ftz.f32", 1),
        ("cvt.rni.f32.f32", 1),
    ],
)
def test_an_operation_on_nan_returns_the_canonical_nan(instruction: str, sources: int) -> None:
    arrays = [aligned(COUNT, np.uint32) for _ in range(sources)]
    for array in arrays:
        array[:] = np.resize(NANS, COUNT)
    assert set(execute(instruction, ["b32"] * sources, "b32", arrays).tolist()) == {0x7FFFFFFF}


@pytest.mark.parametrize(
    ("instruction", "x", "y"),
    [("sub.f32", math.inf, math.inf), ("mul.f32", 0.0, -math.inf), ("div.rn.f32", 0.0, 0.0)],
)
def test_an_invalid_operation_returns_the_canonical_nan(instruction: str, x: float, y: float) -> None:
    arrays = [aligned(COUNT), aligned(COUNT)]
    arrays[0][:] = x
    arrays[1][:] = y
    assert set(execute(instruction, ["f32", "f32"], "b32", arrays).tolist()) == {0x7FFFFFFF}


def test_moving_a_nan_keeps_its_payload() -> None:
    array = aligned(COUNT, np.uint32)
    array[:] = np.resize(NANS, COUNT)
    np.testing.assert_array_equal(execute("mov.f32", ["b32"], "b32", [array]), array)
    np.testing.assert_array_equal(execute("neg.f32", ["b32"], "b32", [array]), array ^ np.uint32(1 << 31))
    np.testing.assert_array_equal(execute("abs.f32", ["b32"], "b32", [array]), array & np.uint32(0x7FFFFFFF))


def test_float64_addition_keeps_the_payload_of_a_nan() -> None:
    array = aligned(COUNT, np.uint64)
    array[:] = np.resize([0x7FF8000000000001, 0xFFF8000012345678], COUNT)
    got = execute("add.f64 {d}, {0}, 0d3FF0000000000000;", ["b64"], "b64", [array])
    np.testing.assert_array_equal(got, array)
    assert set(execute("cvt.rn.f32.f64", ["b64"], "b32", [array]).tolist()) == {0x7FFFFFFF}
