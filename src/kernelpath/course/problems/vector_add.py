"""Vector addition: out = x + y for float32 vectors of any length, contiguous but not always aligned to 16 bytes."""

from __future__ import annotations

import torch

from kernelpath.course import draw
from kernelpath.course.problem import Problem, Tolerance


def inputs(rng: torch.Generator, n: int, offset: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return two vectors of n elements: x begins `offset` elements into its storage, y twice as far into its own."""
    x = draw.normal(rng, n + offset)
    y = draw.normal(rng, n + 2 * offset)
    return x[offset:], y[2 * offset :]


def reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.double() + y.double()


def extreme(rng: torch.Generator, x: torch.Tensor, y: torch.Tensor) -> None:
    """Set infinities and NaN, which a sum keeps, and sums that cancel except for a few bits.

    There are no denormals, as fast math is allowed.
    """
    y[::3] = x[::3] * -(1 + 2**-20)
    for tensor in (x, y):
        draw.any_bits_(rng, tensor, denormal=False)


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        {"n": 1, "offset": 0},
        {"n": 255, "offset": 0},
        {"n": 256, "offset": 0},
        {"n": 257, "offset": 0},
        {"n": 10_007, "offset": 1},
        {"n": 262_147, "offset": 0},  # a prime just past 1024 blocks of 256
        {"n": 393_216, "offset": 0},
    ),
    vary=("n",),
    far=({"n": (1 << 32) + 67, "offset": 0},),
    reference=reference,
    # A float32 sum is rounded once: off by 2^-24 (6.0e-8) at most. With x and y in TF32 or bfloat16 the
    # median error is 1.4e-4 or 1.8e-3, and 99.9% of the elements fail.
    tolerance={"float32": Tolerance(rtol=6.0e-8, atol=0.0)},
    extreme=extreme,
    faults={"infinities made finite": lambda x, y: (x.double() + y).clamp(-1e38, 1e38)},
    compulsory_bytes=lambda n, offset: 12 * n,
    flops=lambda n, offset: n,
)
