"""Declare the ranges of shapes over which a kernel should be fast: what `kp bench` times besides the bench case.

A kernel tuned at one size can be much slower at others: a softmax that reaches 0.97 of a copy at 8192 columns
reached 0.27 at 128, on one H200.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from kernelpath.course.problem import Case

# The elements of a matrix of rows: 256 MiB in bfloat16, five times the L2 of an H200.
_ELEMENTS = 1 << 27

_COLUMNS = (64, 128, 256, 384, 1000, 1024, 2048, 4096, 5000, 8192, 12288, 16384, 32768, 50257, 65536, 131072, 262144)


def rows() -> Sequence[Case]:
    """Return cases for row kernels: short rows, long ones, and lengths that are not powers of two, in two dtypes."""
    return tuple(
        {"rows": _ELEMENTS // columns, "columns": columns, "dtype": dtype}
        for dtype, columns in product(("bfloat16", "float32"), _COLUMNS)
    )


def vectors() -> Sequence[Case]:
    """Return vectors of 4 MiB to 4 GiB in float32, and two whose length fits no vector access."""
    return tuple({"n": n} for n in (*(1 << power for power in range(20, 31, 2)), 1_000_003, 100_000_007))


def attention() -> Sequence[Case]:
    """Return heads of 64, 128 and 256 at 1k to 32k tokens, causal or not, 2048 columns in total; and grouped heads."""
    shapes = [(tokens, head, 1) for head in (64, 128, 256) for tokens in (1024, 4096, 16_384)]
    shapes += [(32_768, 128, 1), (4096, 128, 4), (1000, 128, 4)]
    return tuple(
        {
            "batch": max(1, 16_384 // tokens),
            "heads": 2048 // head,
            "kv_heads": 2048 // head // group,
            "tokens": tokens,
            "head": head,
            "causal": causal,
            "dtype": "bfloat16",
        }
        for (tokens, head, group), causal in product(shapes, (False, True))
    )


def products() -> Sequence[Case]:
    """Return GEMM shapes: squares, few rows against a large matrix, a k that fits no tile, and odd sizes."""
    squares = [(size, size, size) for size in (512, 1024, 2048, 4096, 8192, 16384)]
    flat = [(rows, 8192, 8192) for rows in (16, 64, 128)]
    ragged = [(4096, 4096, 4104), (4095, 4097, 4099)]
    return tuple({"m": m, "n": n, "k": k} for m, n, k in (*squares, *flat, *ragged))
