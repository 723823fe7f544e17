"""Test arithmetic that sm_90 adds to sm_80: 8-bit floats, pairs of integers, vector atomics, mma of float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from machine.instructions import COUNT, RNG, Array, equal_bits, execute, sources, wrapped
from machine.launching import aligned, buffer
from warpcheck import simt

EIGHT_BIT_FORMATS = {"e4m3": (torch.float8_e4m3fn, 448.0), "e5m2": (torch.float8_e5m2, 57344.0)}


def to_eight_bits(values: Array, name: str) -> Array:
    """Convert float32 to bytes. torch rounds to nearest even, but does not saturate."""
    dtype, largest = EIGHT_BIT_FORMATS[name]
    numbers = torch.from_numpy(np.ascontiguousarray(values))
    bits = numbers.clamp(-largest, largest).to(dtype).view(torch.uint8).numpy()
    return np.where(np.isnan(values), np.uint8(0x7F), bits)


def floats(values: Array, name: str) -> Array:
    return torch.from_numpy(values.view(np.uint8)).view(EIGHT_BIT_FORMATS[name][0]).to(torch.float32).numpy()


def numbers() -> Array:
    """Return pairs of f16: first equal halves that cover the range with infinities and NaNs, then random ones."""
    values = aligned(COUNT, np.uint32)
    values[:] = RNG.integers(0, 1 << 32, COUNT)
    values[:512] = np.arange(0, 1 << 16, 128) * 0x10001
    return values


@pytest.mark.parametrize("name", EIGHT_BIT_FORMATS)
@pytest.mark.parametrize("relu", ["", ".relu"])
def test_conversion_to_8_bits_and_back(name: str, relu: str) -> None:
    halves = numbers()
    values = halves.view(np.float16).astype(np.float32)
    clamped = np.where(values <= 0, np.float32(0), values) if relu else values
    want = to_eight_bits(clamped, name)
    got = execute(f"cvt.rn.satfinite{relu}.{name}x2.f16x2", ["b32"], "u16", [halves], "sm_90a").view(np.uint8)
    assert np.array_equal(got, want)
    low, high = (aligned(COUNT, np.float32) for _ in range(2))
    # The lower values are not representable in f16. The first source of the instruction is the upper half.
    with np.errstate(invalid="ignore"):
        low[:], high[:] = values[::2] * np.float32(1.001), values[1::2]
    got = execute(f"cvt.rn.satfinite{relu}.{name}x2.f32", ["f32", "f32"], "u16", [high, low], "sm_90a").view(np.uint8)
    pair = np.stack([low, high], 1).reshape(-1)
    assert np.array_equal(got, to_eight_bits(np.where(pair <= 0, np.float32(0), pair) if relu else pair, name))
    restored = execute(
        f"cvt.rn{relu}.f16x2.{name}x2", ["u16"], "b32", [halves.view(np.uint16)[:COUNT].copy()], "sm_90a"
    )
    decoded = floats(halves.view(np.uint16)[:COUNT].copy(), name)
    assert equal_bits(
        restored.view(np.float16),
        np.where(decoded <= 0, 0, decoded).astype(np.float16) if relu else decoded.astype(np.float16),
    )


def apply_to_halves(operation: Callable[[int, int], int], signed: bool) -> Callable[[int, int], int]:
    """Return a function that applies an operation to the halves of two words."""

    def apply(x: int, y: int) -> int:
        halves = [operation(*(wrapped(v >> shift, 16, signed) for v in (x, y))) for shift in (0, 16)]
        return (halves[0] & 0xFFFF) | (halves[1] & 0xFFFF) << 16

    return apply


def tf32(x: float) -> float:
    truncated_bits = np.float32(0.0 if x <= 0 else x).view(np.uint32) & np.uint32(0xFFFFE000)
    return float("nan") if np.isnan(x) else float(truncated_bits.view(np.float32))


def truncate_to_bf16(x: float) -> int:
    """Convert to bf16 by truncation, with relu. An H200 turns every NaN into 0x7fff."""
    return 0x7FFF if np.isnan(x) else 0 if x <= 0 else int(np.float32(x).view(np.uint32)) >> 16


RULES: list[tuple[str, str, str, Callable[..., Any]]] = [
    ("max.s16x2", "u32 u32", "u32", apply_to_halves(max, signed=True)),
    ("min.u16x2", "u32 u32", "u32", apply_to_halves(min, signed=False)),
    ("min.relu.s16x2", "u32 u32", "u32", apply_to_halves(lambda x, y: max(0, min(x, y)), signed=True)),
    ("add.u16x2", "u32 u32", "u32", apply_to_halves(lambda x, y: x + y, signed=False)),
    ("cvt.rz.relu.tf32.f32", "f32", "f32", tf32),
    ("cvt.rz.relu.bf16x2.f32", "f32 f32", "u32", lambda x, y: truncate_to_bf16(y) | truncate_to_bf16(x) << 16),
    ("cvt.rn.satfinite.f16.f32", "f32", "f16", lambda x: np.clip(x, -65504, 65504)),
]


@pytest.mark.parametrize(
    ("name", "kinds", "result", "rule"), RULES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_instruction_equals_its_rule(name: str, kinds: str, result: str, rule: Callable[..., Any]) -> None:
    arrays = sources(kinds.split())
    got = execute(name, kinds.split(), result, arrays, "sm_90a")
    with np.errstate(all="ignore"):
        want = [rule(*(v.item() for v in values)) for values in zip(*arrays, strict=True)]
        assert equal_bits(got, np.array(want).astype(got.dtype))


def test_vector_atomics() -> None:
    """Each thread adds to its own elements first, then all threads add to the same elements."""
    text = """.version 8.5
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 a) {
.reg .b32 %r<9>; .reg .b16 %h<9>; .reg .f32 %f<9>; .reg .b64 %rd<9>;
ld.param.u64 %rd1, [a];
mov.u32 %r1, %tid.x;
mad.wide.u32 %rd2, %r1, 16, %rd1;
mov.f32 %f1, 0f3F800000;
mov.f32 %f2, 0f40000000;
atom.global.add.v4.f32 {%f3, %f4, %f5, %f6}, [%rd2], {%f1, %f2, %f1, %f2};
red.global.add.v4.f32 [%rd2], {%f3, %f4, %f5, %f6};
red.relaxed.gpu.global.add.v2.f32 [%rd1+1024], {%f1, %f2};
mov.b16 %h1, 0x3C00;
mov.b16 %h2, 0x4000;
red.global.add.noftz.v2.f16 [%rd1+1040], {%h1, %h2};
mov.b32 %r2, {%h2, %h1};
red.global.max.noftz.v2.f16x2 [%rd1+1048], {%r2, %r2};
ret;
}
"""
    array = aligned(270, np.float32)
    array[:128] = np.arange(128)
    simt.load(text).launch("k", grid=(1,), block=(32,), args=[array.ctypes.data], buffers=[buffer("a", array)])
    assert np.array_equal(array[:128], 2 * np.arange(128) + np.tile([1, 2], 64))
    assert array[256:258].tolist() == [32, 64]
    halves = array[260:264].view(np.float16)
    assert halves[:2].tolist() == [32, 64]
    assert halves[4:].tolist() == [2, 1, 2, 1]


def test_mma_of_float64() -> None:
    """In m16n8k8, each lane holds one element of every 4 k in the rows g and g + 8."""
    a, b, c = (RNG.integers(-9, 9, shape).astype(np.float64) for shape in ((16, 8), (8, 8), (16, 8)))
    lanes = aligned((32, 10), np.float64)
    for lane in range(32):
        g, t = divmod(lane, 4)
        lanes[lane, :4] = a[g, t], a[g + 8, t], a[g, t + 4], a[g + 8, t + 4]
        lanes[lane, 4:6] = b[t, g], b[t + 4, g]
        lanes[lane, 6:] = [c[g + 8 * half, 2 * t + n] for half in range(2) for n in range(2)]
    registers = [f"%d{n}" for n in range(10)]
    groups = [f"{{{', '.join(registers[start:end])}}}" for start, end in ((6, 10), (0, 4), (4, 6), (6, 10))]
    loads = "\n".join(f"ld.global.f64 {name}, [%rd1+{8 * n}];" for n, name in enumerate(registers))
    stores = "\n".join(f"st.global.f64 [%rd1+{8 * n}], {registers[n]};" for n in range(6, 10))
    text = f""".version 8.5
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 a) {{
.reg .b32 %r<2>; .reg .f64 %d<10>; .reg .b64 %rd<2>;
ld.param.u64 %rd1, [a];
mov.u32 %r1, %tid.x;
mad.wide.u32 %rd1, %r1, 80, %rd1;
{loads}
mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {", ".join(groups)};
{stores}
ret;
}}
"""
    simt.load(text).launch("k", grid=(1,), block=(32,), args=[lanes.ctypes.data], buffers=[buffer("a", lanes)])
    got = np.empty((16, 8))
    for lane in range(32):
        g, t = divmod(lane, 4)
        got[g, 2 * t : 2 * t + 2], got[g + 8, 2 * t : 2 * t + 2] = lanes[lane, 6:8], lanes[lane, 8:]
    assert np.array_equal(got, a @ b + c)
