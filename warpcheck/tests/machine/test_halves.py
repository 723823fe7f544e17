"""Test half precision: f16 and bf16, alone and in pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from machine.instructions import COUNT, RNG, Array, check, execute, sources
from machine.launching import aligned


def test_halves_are_flushed_to_zero_below_their_own_normal_range() -> None:
    # An H200 rounds to the 11 significant bits of a normal number first. Only a result that is still below 2**-14
    # becomes zero.
    def flush_half(value: Any) -> Any:
        return np.copysign(np.float16(0), value) if abs(np.float16(value * 2.0**10)) < 2.0**-4 else value

    text = "mul.ftz.f16 {d}, {0}, {1};"
    check(text, "f16 f16", "f16", lambda a, b: flush_half(np.float64(flush_half(a)) * np.float64(flush_half(b))))


@pytest.mark.parametrize(
    ("x", "y", "multiple"),
    [
        (1 - 2.0**-10, 1 + 2.0**-10, 1),
        (1 - 2.0**-9, 1 + 2.0**-9, 1),
        (1 - 2.0**-11, 1, 0),
        (2 * (1 - 2.0**-11), 0.5, 0),
    ],
)
def test_results_that_round_up_to_the_smallest_normal_half_are_not_flushed(x: float, y: float, multiple: float) -> None:
    operands = [np.full(COUNT, 2.0**-7 * factor, np.float16) for factor in (x, y)]
    got = execute("mul.ftz.f16 {d}, {0}, {1};", ["f16", "f16"], "f16", operands)
    assert set(np.asarray(got, np.float64).tolist()) == {multiple * 2.0**-14}


@pytest.mark.parametrize(
    ("name", "rule"), [("add", lambda a, b: a + b), ("sub", lambda a, b: a - b), ("mul", lambda a, b: a * b)]
)
def test_half_arithmetic(name: str, rule: Callable[..., Any]) -> None:
    check(f"{name}.f16", "f16 f16", "f16", lambda a, b: np.float16(rule(np.float64(a), np.float64(b))))


def test_half_fma_rounds_once() -> None:
    expected = lambda a, b, c: np.float16(np.float64(a) * np.float64(b) + np.float64(c))  # noqa: E731
    check("fma.rn.f16", "f16 f16 f16", "f16", expected)


def to_bf16(values: Array) -> Array:
    import torch

    return torch.from_numpy(values.copy()).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)


def test_bf16_conversion_is_to_nearest_even() -> None:
    (x,) = sources(["f32"])
    x[100:116] = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x7F7FFFFF] * 4, np.uint32).view(np.float32)
    got = execute("cvt.rn.bf16.f32", ["f32"], "bf16", [x])
    finite = ~np.isnan(x)
    assert (got[finite] == to_bf16(x)[finite]).all()
    assert (got[~finite] == 0x7FFF).all()


def test_packed_halves() -> None:
    x, y = (aligned(COUNT, np.uint32) for _ in range(2))
    for array in (x, y):
        array[...] = RNG.standard_normal(2 * COUNT).astype(np.float16).view(np.uint32)
    got = execute("fma.rn.f16x2 {d}, {0}, {1}, {1};", ["b32", "b32"], "b32", [x, y]).view(np.float16)
    a = x.view(np.float16).astype(np.float64)
    b = y.view(np.float16).astype(np.float64)
    assert (got == (a * b + b).astype(np.float16)).all()
