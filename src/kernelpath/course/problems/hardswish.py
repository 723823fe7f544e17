"""Hardswish: out = x * min(max(x + 3, 0), 6) / 6 for a float32 matrix whose rows may have gaps between them."""

from __future__ import annotations

import math

import torch

from kernelpath.course import draw
from kernelpath.course.problem import Problem, Tolerance


def inputs(rng: torch.Generator, rows: int, columns: int, pad: int) -> tuple[torch.Tensor]:
    """Return the left part of a matrix that is `pad` columns wider; half the values are between the bends."""
    return (draw.normal(rng, rows, columns + pad).mul_(3)[:, :columns],)


def reference(x: torch.Tensor) -> torch.Tensor:
    return x.double() * (x.double() + 3).clamp(0, 6) / 6


def extreme(rng: torch.Generator, x: torch.Tensor) -> None:
    """Set both bends, zeros, infinities and NaN; the result for -inf is -inf * 0."""
    special = torch.tensor([-3.0, 3.0, 0.0, -0.0, math.inf, -math.inf, math.nan, -3.5, 1e30], device=x.device)
    places = torch.rand(x.shape, generator=rng, device=x.device)
    x[:] = torch.where(places < 0.5, special[(places * 2 * len(special)).long().clamp(max=len(special) - 1)], x)


def magnitudes(x: torch.Tensor) -> torch.Tensor:
    """Return the sum of the magnitudes of the terms x * x / 6 and x / 2, and |x| beyond the bends."""
    size = x.double().abs()
    return size * (size.clamp(max=3) / 6 + 0.5)


def infinities_to_zero(x: torch.Tensor) -> torch.Tensor:
    """Return zero for x <= -3 instead of the product."""
    return torch.where(x <= -3, 0.0, reference(x))


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        {"rows": 1, "columns": 1, "pad": 0},
        {"rows": 7, "columns": 31, "pad": 0},
        {"rows": 8, "columns": 32, "pad": 3},
        {"rows": 9, "columns": 33, "pad": 5},
        {"rows": 32, "columns": 128, "pad": 4},
        {"rows": 63, "columns": 509, "pad": 3},
        {"rows": 192, "columns": 1024, "pad": 8},
    ),
    vary=("rows", "columns"),
    # In the second what a thread steps over at once, a quarter of the rows as in the reference, is past 2**31, too.
    far=(
        {"rows": (1 << 18) + 16, "columns": 1 << 14, "pad": 8},
        {"rows": (1 << 17) + 16, "columns": (1 << 16) + 8, "pad": 8},
    ),
    reference=reference,
    # Four roundings, of 2^-24 (6.0e-8) each at most; near -3, x / 6 + 0.5 cancels, where a single element has no other
    # to measure its error by: mtol. Inputs in TF32 miss by 1.4e-4.
    tolerance={"float32": Tolerance(rtol=4e-7, atol=2e-7, mtol=4 * 2**-24)},
    magnitudes=magnitudes,
    extreme=extreme,
    faults={"-inf taken for a value below the bend": infinities_to_zero},
    limits=({"rows": 65_537, "columns": 1, "pad": 0}, {"rows": 1, "columns": 200_003, "pad": 0}),
    compulsory_bytes=lambda rows, columns, pad: 8 * rows * columns,
    flops=lambda rows, columns, pad: 5 * rows * columns,
)
