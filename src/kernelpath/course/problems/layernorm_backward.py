"""The gradients of layer normalization, from the mean and rstd that the forward pass kept; computed in float32.

With xhat = (x - mean) * rstd and g = dy * weight: dx = (g - mean of g - xhat * mean of g * xhat) * rstd along each row,
and down each column dweight = sum of dy * xhat, dbias = sum of dy.
"""

from __future__ import annotations

import torch

from kernelpath.course import draw
from kernelpath.course.problem import BYTES, Problem, Tolerance
from kernelpath.course.problems import layernorm

Gradients = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def inputs(rng: torch.Generator, rows: int, columns: int, dtype: str) -> tuple[torch.Tensor, ...]:
    """Return dy, with a mean of 1 so that the mean of g matters, x and weight as in layernorm, mean and rstd of x."""
    x, weight, _, _ = layernorm.inputs(rng, rows, columns, dtype)
    dy = draw.normal(rng, rows, columns, dtype=dtype, large=0)
    if x.is_meta:
        return dy, x, weight, x.new_empty(rows, dtype=torch.float32), x.new_empty(rows, dtype=torch.float32)
    return dy, x, weight, *statistics(x)


def statistics(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return mean and rstd of each row of x, in float32."""
    mean = x.double().mean(dim=1)
    variance = (x.double() - mean[:, None]).square().mean(dim=1)
    return mean.float(), (variance + layernorm.EPS).rsqrt().float()


def extreme(
    rng: torch.Generator,
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
) -> None:
    """Set the rows, in turn: equal values, a mean of 300, no gradient, a plain one."""
    kinds = (torch.arange(len(x), device=x.device) + int(torch.randint(4, (), generator=rng, device=rng.device))) % 4
    x[kinds == 0] = 1
    x[kinds == 1] += 300
    dy[kinds == 2] = 0
    for statistic, changed in zip((mean, rstd), statistics(x), strict=True):
        statistic.copy_(changed)


def reference(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor
) -> Gradients:
    upstream = dy.double()
    scale = rstd.double()[:, None]
    xhat = (x.double() - mean.double()[:, None]) * scale
    g = upstream * weight.double()
    along = (g * xhat).mean(dim=1, keepdim=True)
    dx = (g - g.mean(dim=1, keepdim=True) - xhat * along) * scale
    return dx, (upstream * xhat).sum(dim=0), upstream.sum(dim=0)


def operator(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor
) -> Gradients:
    """Call PyTorch's operator: x and dy are read for dx, and again for the gradients of weight and bias."""
    columns = (x.shape[1],)
    row_statistics = (mean[:, None], rstd[:, None])
    dx, dweight, dbias = torch.ops.aten.native_layer_norm_backward(
        dy, x, columns, *row_statistics, weight, weight, [True] * 3
    )
    return dx, dweight, dbias


def difference_of_squares(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor
) -> Gradients:
    """Recompute rstd from the mean of x^2 minus the square of the mean, in float32."""
    variance = x.float().square().mean(dim=1) - x.float().mean(dim=1).square()
    return reference(dy, x, weight, mean, (variance.double().clamp(min=0) + layernorm.EPS).rsqrt())


PROBLEM = Problem(
    inputs=inputs,
    # dx of a row of one or two elements is 0, whatever dy is: nothing could be compared.
    cases=(
        {"rows": 1, "columns": 5, "dtype": "float32"},
        {"rows": 7, "columns": 127, "dtype": "bfloat16"},
        {"rows": 64, "columns": 128, "dtype": "bfloat16"},
        {"rows": 33, "columns": 129, "dtype": "float32"},
        {"rows": 19, "columns": 1009, "dtype": "float32"},
        {"rows": 1100, "columns": 24, "dtype": "bfloat16"},
        {"rows": 35, "columns": 2048, "dtype": "float32"},
        # The largest, whose bytes count: a partial sum for each multiprocessor is little beside so many rows.
        {"rows": 400, "columns": 256, "dtype": "float32"},
    ),
    vary=("rows", "columns"),
    far=({"rows": (1 << 21) + 3, "columns": 2048, "dtype": "float32"},),
    reference=reference,
    outputs=("dx", "dweight", "dbias"),
    tolerance={
        # dx is a difference, and xhat has the error of x - mean, so atol counts.
        "float32": Tolerance(rtol=2e-5, atol=2e-4),
        # Rounding the result alone costs 2^-8 = 3.9e-3.
        "bfloat16": Tolerance(rtol=4e-3, atol=2e-4),
    },
    extreme=extreme,
    faults={"the difference of squares": difference_of_squares},
    limits=(
        {"rows": 3, "columns": 25_000, "dtype": "bfloat16"},
        {"rows": 1, "columns": 32_768, "dtype": "bfloat16"},
    ),
    must_reach={"rows": 1_024, "columns": 32_768},
    gpu_limits=({"rows": 65_537, "columns": 8, "dtype": "float32"},),
    compulsory_bytes=lambda rows, columns, dtype: 3 * BYTES[dtype] * (rows + 1) * columns + 8 * rows,
    flops=lambda rows, columns, dtype: 14 * rows * columns,
)
