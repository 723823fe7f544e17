"""Stencil: a triangle of radius 8 smooths a float32 vector: out[i] = sum of (9 - |k|) x[i + k] / 81 for k = -8 .. 8."""

from __future__ import annotations

import torch

from kernelpath.course import draw
from kernelpath.course.problem import Problem, Tolerance

RADIUS = 8


def inputs(rng: torch.Generator, n: int) -> tuple[torch.Tensor]:
    return (draw.normal(rng, n),)


def reference(x: torch.Tensor) -> torch.Tensor:
    """Count elements outside of the vector as 0."""
    padded = torch.nn.functional.pad(x.double(), (RADIUS, RADIUS))
    out = torch.zeros_like(x, dtype=torch.float64)
    for k in range(-RADIUS, RADIUS + 1):
        start = RADIUS + k
        out.add_(padded[start : start + x.numel()], alpha=(RADIUS + 1 - abs(k)) / (RADIUS + 1) ** 2)
    return out


def extreme(rng: torch.Generator, x: torch.Tensor) -> None:
    """Set infinities and NaN, one in a hundred, which reach only the 17 elements around them."""
    places = torch.randperm(x.numel(), generator=rng, device=rng.device)[: 1 + x.numel() // 100]
    some = x[places]
    draw.any_bits_(rng, some, denormal=False)
    x[places] = some


def nothing_times_infinity(x: torch.Tensor) -> torch.Tensor:
    """Include a neighbor at distance 9, with a weight of 0."""
    further = torch.nn.functional.pad(x.double(), (RADIUS + 1, 0))[: x.numel()]
    return reference(x) + 0 * further


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        {"n": 1},
        {"n": 7},
        {"n": 255},
        {"n": 256},
        {"n": 257},
        {"n": 1023},
        {"n": 1025},
        {"n": 10_007},
        {"n": 65_536},
    ),
    vary=("n",),
    far=({"n": (1 << 32) + 67},),
    reference=reference,
    # A sum of 17 products in float32, in any order and with any rounding of the weights: each weight and each product
    # is rounded by 2^-24 at most, and each term takes part in at most 16 additions, so the error is at most
    # 18 * 2^-24 of the sum of magnitudes. With x in TF32 99% of the elements fail.
    tolerance={"float32": Tolerance(rtol=0.0, atol=0.0, mtol=19 * 2**-24)},
    magnitudes=lambda x: reference(x.abs()),
    extreme=extreme,
    faults={"a weight of 0 beyond the radius": nothing_times_infinity},
    compulsory_bytes=lambda n: 8 * n,
    flops=lambda n: 34 * n,
)
