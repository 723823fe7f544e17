"""Compare conversions to and from 4-bit and 6-bit types and scale factors with tables of their values.

Values and rounding follow the PTX ISA manual, "cvt", and cuda_fp4.hpp, cuda_fp6.hpp, and cuda_fp8.hpp.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from machine.instructions import COUNT, RNG, execute
from machine.launching import aligned

Array = np.ndarray[Any, Any]
# The bits of the exponent and of the fraction, and the bias of the exponent.
FORMATS = {"e2m1": (2, 1, 1), "e2m3": (2, 3, 1), "e3m2": (3, 2, 3)}

SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, -math.nan, 1e-30, -1e-30, 1e30, -1e30]


def numbers(name: str) -> Array:
    """Return the values of all codes without a sign."""
    exponent_bits, fraction_bits, bias = FORMATS[name]
    values = []
    for code in range(1 << exponent_bits + fraction_bits):
        exponent, fraction = divmod(code, 1 << fraction_bits)
        significand = fraction / (1 << fraction_bits) + (exponent > 0)
        values.append(significand * 2.0 ** (max(exponent, 1) - bias))
    return np.array(values)


def code_of(value: float, name: str) -> int:
    """Round a number to the nearest value of a type, with ties to the even code."""
    table = numbers(name)
    if math.isnan(value):
        return len(table) - 1
    distance = np.abs(table - min(abs(value), table[-1]))
    best = np.flatnonzero(distance == distance.min())
    return int(best[best % 2 == 0][0] if len(best) == 2 else best[0]) + len(table) * (math.copysign(1, value) < 0)


def sample_inputs(name: str) -> Array:
    """Return values of a type, values slightly off, and values halfway between neighbors."""
    table = numbers(name)
    candidates = np.concatenate([table, (table[1:] + table[:-1]) / 2])
    candidates = np.concatenate([candidates, candidates * (1 + 2.0**-20), candidates * (1 - 2.0**-20)])
    values = aligned(COUNT, np.float32)
    values[:] = RNG.choice(np.concatenate([candidates, -candidates]), COUNT)
    values[: len(SPECIAL)] = SPECIAL
    return values


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("name", FORMATS)
def test_conversion_of_float32_to_pairs(name: str, relu: bool) -> None:
    upper = sample_inputs(name)
    lower = np.roll(sample_inputs(name), 7)
    instruction = f"cvt.rn.satfinite{'.relu' * relu}.{name}x2.f32"
    bits = 4 if name == "e2m1" else 8
    if name == "e2m1":
        text = f".reg .b8 %t; {instruction} %t, {{0}}, {{1}}; cvt.u16.u8 {{d}}, %t;"
    else:
        text = f"{instruction} {{d}}, {{0}}, {{1}};"
    lower_aligned = aligned(COUNT, np.float32)
    lower_aligned[:] = lower
    got = execute(text, ["f32", "f32"], "u16", [upper, lower_aligned], "sm_100a").astype(int)
    for high, low, codes in zip(upper, lower_aligned, got, strict=True):
        if relu:
            high, low = (0.0 if value <= 0 else value for value in (high, low))
        assert codes == code_of(high, name) << bits | code_of(low, name), (high, low)


@pytest.mark.parametrize("name", FORMATS)
def test_conversion_of_pairs_to_float16(name: str) -> None:
    table = numbers(name)
    table = np.concatenate([table, -table]).astype(np.float16)
    bits = 4 if name == "e2m1" else 8
    codes = RNG.integers(0, len(table), (COUNT, 2))
    pairs = aligned(COUNT, np.uint16)
    pairs[:] = codes[:, 1] << bits | codes[:, 0]
    text = f"cvt.rn.f16x2.{name}x2 {{d}}, {{0}};"
    if name == "e2m1":
        text = ".reg .b8 %t; cvt.u8.u16 %t, {0}; cvt.rn.f16x2.e2m1x2 {d}, %t;"
    got = execute(text, ["u16"], "b32", [pairs], "sm_100a")
    np.testing.assert_array_equal(got.view(np.uint16).reshape(COUNT, 2), table[codes].view(np.uint16))


def test_packing_four_bytes_into_a_word() -> None:
    """Compilers pack eight 4-bit numbers into a word like this."""
    values = sample_inputs("e2m1")
    text = ".reg .b8 %t; .reg .b8 %u; cvt.rn.satfinite.e2m1x2.f32 %t, {0}, 0f3F800000; cvt.u8.u16 %u, 3;"
    text += "mov.b32 {d}, (%t, %u, %t, %u);"  # parentheses, because execute replaces braces
    got = execute(text, ["f32"], "b32", [values], "sm_100a")
    for value, word in zip(values, got, strict=True):
        pair = code_of(value, "e2m1") << 4 | 2
        assert int(word) == pair * 0x10001 | 0x3000300


def scale_code(value: float, rounds_up: bool, saturates: bool) -> int:
    """Return the ue8m0 code of the magnitude of a number."""
    if math.isnan(value):
        return 0xFF
    if math.isinf(value):
        return 0xFE if saturates else 0xFF
    if value == 0:
        return 0
    significand, exponent = math.frexp(abs(value))  # the significand is in [0.5, 1)
    exponent += (significand > 0.5 and rounds_up) - 1
    if exponent > 127:
        return 0xFE if saturates else 0xFF
    return max(exponent + 127, 0)


@pytest.mark.parametrize("saturates", [False, True])
@pytest.mark.parametrize("rounding", ["rz", "rp"])
@pytest.mark.parametrize("source", ["f32", "bf16x2"])
def test_conversion_to_scale_factors(source: str, rounding: str, saturates: bool) -> None:
    values = aligned(COUNT, np.uint32)
    values[:] = RNG.integers(0, 1 << 32, COUNT, np.uint32) & 0xFFFF0000
    special = np.array([*SPECIAL, 2.0**-127, 2.0**-128, 2.0**-126, 1.5 * 2.0**-127, 1.5 * 2.0**127, 1.0], np.float32)
    values[: len(special)] = special.view(np.uint32) & 0xFFFF0000
    numbers = values.view(np.float32)
    instruction = f"cvt.{rounding}{'.satfinite' * saturates}.ue8m0x2.{source}"
    if source == "f32":
        got = execute(f"{instruction} {{d}}, {{0}}, {{0}};", ["f32"], "u16", [numbers], "sm_100a")
    else:
        words = aligned(COUNT, np.uint32)
        words[:] = values | values >> 16
        got = execute(f"{instruction} {{d}}, {{0}};", ["u32"], "u16", [words], "sm_100a")
    for number, codes in zip(numbers, got, strict=True):
        assert int(codes) == 0x101 * scale_code(float(number), rounding == "rp", saturates), number


def test_conversion_of_scale_factors_to_bfloat16() -> None:
    pairs = aligned(COUNT, np.uint16)
    pairs[:] = RNG.integers(0, 1 << 16, COUNT)
    pairs[:4] = 0xFF00, 0x00FE, 0x0101, 0x7F80
    got = execute("cvt.rn.bf16x2.ue8m0x2 {d}, {0};", ["u16"], "b32", [pairs], "sm_100a")
    codes = pairs.view(np.uint8)
    expected = codes.astype(np.uint16) << 7
    expected[codes == 0] = 1 << 6
    expected[codes == 0xFF] = 0x7FFF
    np.testing.assert_array_equal(got.view(np.uint16), expected)
