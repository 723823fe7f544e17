"""Softmax and its gradient: y as in softmax, and dx = y * (dy - sum(y * dy)) row by row.

dx follows from y as it is returned, in its dtype. In bfloat16 that is not the gradient of the exact y: where one
element holds most of a row, the rounding of y moves the sum, and with it all of dx.
"""

from __future__ import annotations

import torch

from kernelpath.course import draw
from kernelpath.course.condition import unit_roundoff
from kernelpath.course.problem import ANY_FINITE, BYTES, Problem, Tolerance
from kernelpath.course.problems import softmax

_FURTHER_UNITS = 16


def inputs(rng: torch.Generator, rows: int, columns: int, dtype: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return x, every second row of which is near 100, where exp overflows, and dy with a mean of 2."""
    x = draw.normal(rng, rows, columns, dtype=dtype, large=0)
    x[::2] += 100
    return x, draw.normal(rng, rows, columns, dtype=dtype, large=0) + 1


def reference(x: torch.Tensor, dy: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = softmax.reference(x)
    return y, gradient(y.to(x.dtype).double(), dy.double())


def gradient(y: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    return y * (dy - (y * dy).sum(dim=1, keepdim=True))


def magnitudes(x: torch.Tensor, dy: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return, in units of 2^-24, what right results in float32 may be off by.

    Both sums have as many terms as x has columns (see softmax.magnitudes); a few further units are for the exponential,
    a reciprocal instead of a division, and the products. The error of y counts three times, in y itself and in both
    factors of sum(y * dy). Where y lies between two values of its dtype it may be rounded to either, which are two unit
    roundoffs apart; rounding dx costs a third one.
    """
    y = softmax.reference(x)
    units = x.shape[1] + _FURTHER_UNITS
    terms = dy.double().abs() + 3 * (y * dy.double().abs()).sum(dim=1, keepdim=True)
    rounding = 3 * unit_roundoff(x.dtype) / unit_roundoff(torch.float32) * gradient(y, dy.double()).abs()
    return units * y, units * y * terms + rounding


def unfused(x: torch.Tensor, dy: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute both formulas, an operator for each step: 8 and 9 passes over memory where 2 and 3 suffice."""
    y = softmax.unfused(x)
    return y, gradient(y, dy)


def extreme(rng: torch.Generator, x: torch.Tensor, dy: torch.Tensor) -> None:
    """Set x as for softmax, and every fifth dy to 0."""
    softmax.extreme(rng, x)
    dy[:, ::5] = 0


def maximum_from_zero(x: torch.Tensor, dy: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Start the maximum at 0."""
    y = softmax.maximum_from_zero(x)
    return y, gradient(y.to(x.dtype).double(), dy.double())


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        {"rows": 5, "columns": 257, "dtype": "bfloat16"},
        {"rows": 1, "columns": 1, "dtype": "float32"},
        {"rows": 33, "columns": 32, "dtype": "float32"},
        {"rows": 4, "columns": 4099, "dtype": "float32"},
        {"rows": 64, "columns": 1024, "dtype": "bfloat16"},
    ),
    vary=("rows", "columns"),
    reference=reference,
    tolerance={
        # dx is a difference, so atol counts: float32 inside is off by 2e-4 of the mean at most, bfloat16 inside by 0.09
        # in the median. Of a single column, the difference is 0, unless y is 1 - 2^-24: mtol.
        "float32": Tolerance(rtol=2e-5, atol=5e-4, mtol=2**-24),
        # An element of y that lies between two bfloat16 values may be rounded to either, which are 2^-7 apart, and dx
        # follows: mtol adds the rounding of dx. bfloat16 inside fails in half of the cases.
        "bfloat16": Tolerance(rtol=8e-3, atol=3e-2, mtol=2**-24),
    },
    magnitudes=magnitudes,
    extreme=extreme,
    faults={"a maximum that begins at 0": maximum_from_zero},
    limits=({"rows": 1, "columns": 32_768, "dtype": "bfloat16"}, {"rows": 2_053, "columns": 1, "dtype": "float32"}),
    must_reach={"rows": 2_048, "columns": 32_768},
    domain=ANY_FINITE,
    gpu_limits=({"rows": 65_537, "columns": 1, "dtype": "float32"},),
    outputs=("y", "dx"),
    compulsory_bytes=lambda rows, columns, dtype: 5 * BYTES[dtype] * rows * columns,
    flops=lambda rows, columns, dtype: 9 * rows * columns,
)
