"""Layer normalization: y = (x - mean) * rstd * weight + bias along each row, computed in float32.

rstd = 1 / sqrt(mean of (x - mean)^2 + eps). mean and rstd are kept in float32: the backward pass reads them.
"""

from __future__ import annotations

import torch

from kernelpath.course import draw
from kernelpath.course.problem import BYTES, Problem, Tolerance

# The eps in float32 and where no other is given: PyTorch's default.
EPS = 1e-5

# The eps in bfloat16, which differs so that a kernel with a fixed eps fails.
EPS_OF_HALF = 1e-6

Outputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def inputs(
    rng: torch.Generator, rows: int, columns: int, dtype: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, float]:
    """Return x, a weight and a bias for each column, and eps. One row in eight has a value far from the others."""
    x = draw.normal(rng, rows, columns, dtype=dtype, large=rows // 8)
    weight, bias = (draw.normal(rng, columns, dtype=dtype, large=0) for _ in range(2))
    return x, weight, bias, EPS if dtype == "float32" else EPS_OF_HALF


def extreme(rng: torch.Generator, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> None:
    """Set the rows, in turn: equal values, one that eps decides, a mean of 300 times the deviation, a plain one."""
    kinds = (torch.arange(len(x), device=x.device) + int(torch.randint(4, (), generator=rng, device=rng.device))) % 4
    x[kinds == 0] = 1
    x[kinds == 1] *= 1e-3
    x[kinds == 2] += 300


def reference(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> Outputs:
    centered, mean = _centered(x)
    rstd = (centered.square().mean(dim=1) + eps).rsqrt()
    return centered * rstd[:, None] * weight.double() + bias.double(), mean, rstd


def _centered(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    mean = x.double().mean(dim=1)
    return x.double() - mean[:, None], mean


def magnitudes(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> Outputs:
    """Return the mean of |x| of each row for mean, and for y this mean times rstd and |weight|.

    A mean in float32 is off by at most 2^-24 of the mean magnitude for each addition that a term takes part in (Higham,
    Accuracy and Stability of Numerical Algorithms, 4.2), and y by this error times rstd and weight. The error of the
    variance is of second order if deviations from the mean are squared, as in two passes or in Welford's method, where
    the difference of squares magnifies it by the square of mean / deviation (Chan, Golub and LeVeque, 1983).
    """
    _, _, rstd = reference(x, weight, bias, eps)
    mean_magnitude = x.double().abs().mean(dim=1)
    return weight.double().abs() * (rstd * mean_magnitude)[:, None], mean_magnitude, rstd


def unfused(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> Outputs:
    """Compute by the formula, an operator for each step: eleven passes over x where two suffice."""
    mean = x.mean(dim=1, keepdim=True, dtype=torch.float32)
    centered = x - mean
    rstd = torch.rsqrt(centered.square().mean(dim=1, keepdim=True) + eps)
    return (centered * rstd * weight + bias).to(x.dtype), mean.flatten(), rstd.flatten()


def without_eps(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> Outputs:
    centered, mean = _centered(x)
    rstd = centered.square().mean(dim=1).clamp(min=1e-30).rsqrt()
    return centered * rstd[:, None] * weight.double() + bias.double(), mean, rstd


def difference_of_squares(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> Outputs:
    """Compute the variance as the mean of x^2 minus the square of the mean, in float32."""
    centered, mean = _centered(x)
    variance = x.float().square().mean(dim=1) - x.float().mean(dim=1).square()
    rstd = (variance.double().clamp(min=0) + eps).rsqrt()
    return centered * rstd[:, None] * weight.double() + bias.double(), mean, rstd


PROBLEM = Problem(
    inputs=inputs,
    # A block of values has a power of two of columns, 128 here.
    cases=(
        {"rows": 1, "columns": 1, "dtype": "float32"},
        {"rows": 5, "columns": 127, "dtype": "bfloat16"},
        {"rows": 5, "columns": 128, "dtype": "bfloat16"},
        {"rows": 5, "columns": 129, "dtype": "bfloat16"},
        {"rows": 33, "columns": 1009, "dtype": "float32"},
        {"rows": 3, "columns": 5000, "dtype": "bfloat16"},
        {"rows": 2500, "columns": 12, "dtype": "float32"},
        {"rows": 35, "columns": 2048, "dtype": "float32"},
    ),
    vary=("rows", "columns"),
    far=({"rows": (1 << 21) + 3, "columns": 2048, "dtype": "float32"},),
    reference=reference,
    outputs=("y", "mean", "rstd"),
    tolerance={
        # y has the error of the mean, which counts where the mean is 300 deviations: mtol. A tree of additions is off
        # by up to 6 of 2^-24, Welford's method by up to 40 if it merges 32 columns at a time, and a sum of 2,048
        # columns one after another by 32. The difference of squares is off by 1,500 and more. bfloat16 inside: by 1e-3
        # and more in ordinary rows.
        "float32": Tolerance(rtol=2e-5, atol=2e-4, mtol=128 * 2**-24),
        # Rounding y alone costs 2^-8 = 3.9e-3.
        "bfloat16": Tolerance(rtol=4e-3, atol=2e-4, mtol=128 * 2**-24),
    },
    magnitudes=magnitudes,
    extreme=extreme,
    faults={"no eps": without_eps, "the difference of squares": difference_of_squares},
    limits=(
        {"rows": 3, "columns": 50_000, "dtype": "bfloat16"},
        {"rows": 1, "columns": 65_536, "dtype": "bfloat16"},
    ),
    must_reach={"rows": 2_048},
    gpu_limits=({"rows": 65_537, "columns": 1, "dtype": "float32"},),  # 65,537 blocks that reduce
    compulsory_bytes=lambda rows, columns, dtype: 2 * BYTES[dtype] * (rows + 1) * columns + 8 * rows,
    flops=lambda rows, columns, dtype: 8 * rows * columns,
)
