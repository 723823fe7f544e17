"""Execute one instruction in many threads, on random and special values, and compare it with a rule for one lane."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from machine.launching import aligned, buffer
from warpcheck import simt

__all__ = ["COUNT", "RNG", "TYPES", "Array", "bits", "check", "equal_bits", "execute", "sources", "wrapped"]

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(1)
COUNT = 2048
TYPES: dict[str, Any] = {
    "u16": np.uint16,
    "s16": np.int16,
    "u32": np.uint32,
    "s32": np.int32,
    "u64": np.uint64,
    "s64": np.int64,
}
TYPES |= {"f32": np.float32, "f64": np.float64, "f16": np.float16, "b32": np.uint32, "b64": np.uint64}
SPECIAL = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-40, -1e-40, 3.4e38, 0.5, 1.5, 2.5, -2.5, 1e10, -1e10]


def bits(kind: str) -> int:
    return 16 if kind == "bf16" else 8 * np.dtype(TYPES[kind]).itemsize


def numbers(kind: str) -> tuple[Array, Array]:
    """Return random values of a type, and its special values."""
    dtype = TYPES[kind]
    values = aligned(COUNT, dtype)
    if np.issubdtype(dtype, np.floating):
        with np.errstate(over="ignore"):
            values[...] = (RNG.standard_normal(COUNT) * 10.0 ** RNG.integers(-6, 6, COUNT)).astype(dtype)
            special = np.array(SPECIAL).astype(dtype)
    else:
        info = np.iinfo(dtype)
        values[...] = RNG.integers(info.min, info.max, COUNT, dtype, endpoint=True)
        special = np.array([0, 1, 2, 31, 32, 33, info.max, info.min, info.max - 1, info.max // 2], dtype)
    return values, special


def sources(kinds: list[str]) -> list[Array]:
    """Return the values of each source. The first two begin with all combinations of the special values."""
    arrays = []
    for position, kind in enumerate(kinds):
        values, special = numbers(kind)
        n = len(special)
        grid = (
            np.repeat(special, n)
            if position == 0
            else np.tile(special, n)
            if position == 1
            else np.resize(special, n * n)
        )
        values[: n * n] = grid
        arrays.append(values)
    return arrays


def execute(instruction: str, kinds: list[str], result: str, arrays: list[Array], target: str = "sm_80") -> Array:
    """Execute ``instruction d, s0, s1, ...``, or a template with {d}, {0}, {1} ..., in COUNT threads."""
    letters = [f"%s{n}" for n in range(len(kinds))]
    lines = []
    for n, kind in enumerate(kinds):
        size = bits(kind) // 8
        lines += [f"ld.param.u64 %rd1, [p{n}];", f"mad.wide.u32 %rd2, %r1, {size}, %rd1;"]
        lines += [f"ld.global.b{bits(kind)} %s{n}, [%rd2];"]
    size = bits(result) // 8
    template = instruction if "{d}" in instruction else f"{instruction} {', '.join(['%d', *letters])};"
    # In a template, {d} becomes the register %d, and {0} becomes %s0.
    lines += [template.replace("{d}", "%d").replace("{", "%s").replace("}", ""), "ld.param.u64 %rd1, [out];"]
    lines += [f"mad.wide.u32 %rd2, %r1, {size}, %rd1;", f"st.global.b{8 * size} [%rd2], %d;", "ret;"]
    registers = [f".reg .b{bits(kind)} %s{n};" for n, kind in enumerate(kinds)] + [f".reg .b{8 * size} %d;"]
    params = ", ".join(f".param .u64 {name}" for name in [*(f"p{n}" for n in range(len(kinds))), "out"])
    start = "mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.s32 %r1, %r2, %r3, %r4;"
    body = "\n".join([*registers, ".reg .b32 %r<9>; .reg .b64 %rd<9>;", start, *lines])
    text = f".version 8.6\n.target {target}\n.address_size 64\n.visible .entry k({params}) {{ {body} }}"
    out = aligned(COUNT, TYPES.get(result, np.uint16))
    all_arrays = [*arrays, out]
    buffers = [buffer(f"x{n}", array) for n, array in enumerate(all_arrays)]
    simt.load(text).launch(
        "k", grid=(COUNT // 128,), block=(128,), args=[a.ctypes.data for a in all_arrays], buffers=buffers
    )
    return out


def check(instruction: str, kinds: str, result: str, expected: Callable[..., Any]) -> None:
    """Assert that the instruction's results equal those of `expected`, and list the first five lanes that differ."""
    names = kinds.split()
    arrays = sources(names)
    got = execute(instruction, names, result, arrays)
    with np.errstate(all="ignore"):
        want = np.array([expected(*values) for values in zip(*arrays, strict=True)], object).astype(TYPES[result])
    assert equal_bits(got, want), [
        (*v, g, w) for *v, g, w in zip(*arrays, got, want, strict=True) if not equal_bits(g, w)
    ][:5]


def equal_bits(got: Any, want: Any) -> bool:
    """Return whether all bits are equal, except for the payloads of NaNs."""
    got, want = np.atleast_1d(got), np.atleast_1d(want)
    if not np.issubdtype(got.dtype, np.floating):
        return bool((got == want).all())
    unsigned = np.dtype(f"u{got.dtype.itemsize}")
    both_nan = np.isnan(got) & np.isnan(want)
    return bool((both_nan | (got.view(unsigned) == want.view(unsigned))).all())


def wrapped(value: int, width: int, signed: bool) -> int:
    value &= (1 << width) - 1
    return value - (1 << width) if signed and value >> (width - 1) else value
