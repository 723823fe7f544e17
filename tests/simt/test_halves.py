"""Half precision: f16 and bf16, alone and in pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.simt.instructions import COUNT, RNG, Array, check, execute, sources
from tests.simt.launching import aligned


def test_flush_to_zero_of_halves_has_their_own_threshold() -> None:
    def flushed_half(value: Any) -> Any:  # before it is rounded, as an H200 does
        return np.copysign(np.float16(0), value) if abs(value) < 2.0**-14 else value

    text = "mul.ftz.f16 {d}, {0}, {1};"
    check(text, "f16 f16", "f16", lambda a, b: flushed_half(np.float64(flushed_half(a)) * np.float64(flushed_half(b))))


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
    a, b = x.view(np.float16).astype(np.float64), y.view(np.float16).astype(np.float64)
    assert (got == (a * b + b).astype(np.float16)).all()
