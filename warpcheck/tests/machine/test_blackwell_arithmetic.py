"""Test arithmetic that sm_100 adds: f32x2, three-input min and max, and mixed precision (PTX ISA 9.7.3, 9.7.5)."""

from __future__ import annotations

import numpy as np
import pytest

from machine import exact
from machine.instructions import COUNT, RNG, equal_bits, execute, sources
from machine.launching import aligned, buffer
from warpcheck import simt

KERNEL = """.version 8.7
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y)
{{
.reg .b32 %r<2>; .reg .b64 %rd<9>;
ld.param.u64 %rd1, [x];
ld.param.u64 %rd2, [y];
mov.u32 %r1, %tid.x;
mad.wide.u32 %rd3, %r1, 8, %rd1;
mad.wide.u32 %rd4, %r1, 8, %rd2;
ld.global.b64 %rd5, [%rd3];
ld.global.b64 %rd6, [%rd3+256];
ld.global.b64 %rd7, [%rd3+512];
{statement}
st.global.b64 [%rd4], %rd8;
ret;
}}
"""
EXPECTED = {
    "add.rn.f32x2 %rd8, %rd5, %rd6;": lambda x, y, z: x + y,
    "sub.rn.f32x2 %rd8, %rd5, %rd6;": lambda x, y, z: x - y,
    "mul.rn.f32x2 %rd8, %rd5, %rd6;": lambda x, y, z: x * y,
    "mul.f32x2 %rd8, %rd5, %rd6;": lambda x, y, z: x * y,
    "mul.rn.ftz.f32x2 %rd8, %rd5, %rd6;": lambda x, y, z: x * y,
    "fma.rn.f32x2 %rd8, %rd5, %rd6, %rd7;": lambda x, y, z: (x.astype(np.float64) * y + z).astype(np.float32),
    "add.rz.f32x2 %rd8, %rd5, %rd6;": None,
}


@pytest.mark.parametrize("statement", EXPECTED)
def test_f32x2_computes_both_halves(statement: str) -> None:
    x = aligned((3, 64))
    y = aligned(64)
    x[:] = np.random.default_rng(3).normal(size=x.shape)
    simt.load(KERNEL.format(statement=statement)).launch(
        "k", grid=(1,), block=(32,), args=[x.ctypes.data, y.ctypes.data], buffers=[buffer("x", x), buffer("y", y)]
    )
    rule = EXPECTED[statement]
    if rule is not None:
        np.testing.assert_array_equal(y, rule(*x))
    else:
        exact = x[0].astype(np.float64) + x[1]
        assert np.all(np.abs(y) <= np.abs(exact))
        np.testing.assert_allclose(y, exact, rtol=2**-22)


def test_f32x2_needs_sm_100() -> None:
    text = KERNEL.format(statement="add.rn.f32x2 %rd8, %rd5, %rd6;").replace("sm_100a", "sm_90a")
    with pytest.raises(simt.Rejected, match=r"Feature 'add.f32x2' requires \.target sm_100 or higher"):
        simt.load(text).compile("k")


@pytest.mark.parametrize("name", ["max", "min", "max.NaN"])
def test_min_and_max_of_three_values(name: str) -> None:
    arrays = [aligned(COUNT, np.float32) for _ in range(3)]
    for array in arrays:
        array[:] = RNG.choice([0.0, -0.0, 1.0, -1.0, 2.5, np.nan, np.inf, -np.inf], COUNT)
    got = execute(f"{name}.f32", ["f32"] * 3, "f32", arrays, "sm_100a")
    drops_nan, keeps_nan = (np.fmax, np.maximum) if name.startswith("max") else (np.fmin, np.minimum)
    rule = keeps_nan if "NaN" in name else drops_nan
    np.testing.assert_array_equal(got, rule(rule(arrays[0], arrays[1]), arrays[2]))


@pytest.mark.parametrize("mode", ["rn", "rz", "rp"])
@pytest.mark.parametrize("half", ["f16", "bf16"])
@pytest.mark.parametrize("opcode", ["add", "sub", "fma"])
def test_mixed_precision_rounds_once(opcode: str, half: str, mode: str) -> None:
    narrow_count = 2 if opcode == "fma" else 1
    *unrounded, addends = sources(["f32"] * (narrow_count + 1))
    with np.errstate(over="ignore"):
        if half == "bf16":
            stored = [(values.view(np.uint32) >> 16).astype(np.uint16) for values in unrounded]
            values = [(bits.astype(np.uint32) << 16).view(np.float32) for bits in stored]
        else:
            stored = [numbers.astype(np.float16) for numbers in unrounded]
            values = [numbers.astype(np.float32) for numbers in stored]
    narrow = [aligned(COUNT, array.dtype) for array in stored]
    for array, content in zip(narrow, stored, strict=True):
        array[...] = content
    got = execute(f"{opcode}.{mode}.f32.{half}", [*[half] * narrow_count, "f32"], "f32", [*narrow, addends], "sm_100a")
    with np.errstate(all="ignore"):
        factors = values if opcode == "fma" else [*values, np.ones(COUNT)]
        addend = -addends if opcode == "sub" else addends
        lanes = zip(*factors, addend, strict=True)
        want = np.array([exact.fused(float(x), float(y), float(z), "f32", mode) for x, y, z in lanes], np.float32)
    assert equal_bits(got, want)


def test_mixed_precision_saturates() -> None:
    arrays = [aligned(COUNT, np.float16), aligned(COUNT, np.float32)]
    arrays[0][:], arrays[1][:] = RNG.normal(size=(2, COUNT))
    got = execute("add.sat.f32.f16", ["f16", "f32"], "f32", arrays, "sm_100a")
    np.testing.assert_array_equal(got, np.clip(arrays[0].astype(np.float32) + arrays[1], 0, 1))
