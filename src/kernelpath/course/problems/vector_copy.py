"""Vector copy: a contiguous float32 or bfloat16 vector of any length, which may begin anywhere in its storage."""

from __future__ import annotations

import torch

from kernelpath.course import draw
from kernelpath.course.problem import BYTES, EXACT, Problem

# The largest extent of a CuTe tensor, in elements.
MAX_EXTENT = (1 << 31) - 1


def inputs(rng: torch.Generator, n: int, offset: int, dtype: str) -> tuple[torch.Tensor]:
    """Return a vector of n elements that begins `offset` elements into its storage.

    MAX_EXTENT elements are on torch's meta device and have no values.
    """
    if n == MAX_EXTENT:
        return (torch.empty(n + offset, dtype=getattr(torch, dtype), device="meta")[offset:],)
    return (draw.normal(rng, n + offset, dtype=dtype)[offset:],)


def reference(src: torch.Tensor) -> torch.Tensor:
    return src.clone()


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        {"n": 1, "offset": 0, "dtype": "float32"},
        {"n": 1023, "offset": 0, "dtype": "float32"},
        {"n": 1024, "offset": 0, "dtype": "float32"},
        {"n": 1025, "offset": 0, "dtype": "float32"},
        {"n": 4099, "offset": 1, "dtype": "float32"},
        {"n": 10_007, "offset": 3, "dtype": "bfloat16"},
        {"n": 10_007, "offset": 8, "dtype": "bfloat16"},
        {"n": 100_003, "offset": 0, "dtype": "bfloat16"},
    ),
    vary=("n",),
    far=({"n": MAX_EXTENT, "offset": 0, "dtype": "float32"},),
    reference=reference,
    tolerance={"float32": EXACT, "bfloat16": EXACT},
    compulsory_bytes=lambda n, offset, dtype: 2 * BYTES[dtype] * n,
)
