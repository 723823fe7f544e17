"""Residual addition and RMS normalization, computed in float32.

h = x + residual, and y = h * weight / sqrt(mean(h^2) + eps) along each row.
"""

from __future__ import annotations

import torch

from kernelpath.course import draw
from kernelpath.course.problem import BYTES, Problem, Tolerance

EPS = 1e-6


def inputs(
    rng: torch.Generator, rows: int, columns: int, dtype: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return x and residual, with rows of very different size, and a weight for each column."""
    x = draw.normal(rng, rows, columns, dtype=dtype, large=rows // 8)
    residual = draw.normal(rng, rows, columns, dtype=dtype, large=rows // 8)
    return x, residual, draw.normal(rng, columns, dtype=dtype, large=0)


def extreme(rng: torch.Generator, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> None:
    """Set the rows, in turn: zeros, one that eps decides, one that cancels, a large one, a plain one."""
    kinds = (torch.arange(len(x), device=x.device) + int(torch.randint(5, (), generator=rng, device=rng.device))) % 5
    for tensor in (x, residual):
        tensor[kinds == 0] = 0
        tensor[kinds == 1] *= 1e-4
        tensor[kinds == 3] *= 1e12
    residual[kinds == 2] = -x[kinds == 2]


def without_eps(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    h = reference(x, residual, weight)[1]
    return h * h.square().mean(dim=1, keepdim=True).clamp(min=1e-30).rsqrt() * weight.double(), h


def reference(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return y and h; h is rounded to the dtype of x before it is normalized, since the next layer reads that."""
    h = (x.double() + residual.double()).to(x.dtype).double()
    return h * (h.square().mean(dim=1, keepdim=True) + EPS).rsqrt() * weight.double(), h


def magnitudes(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return half the columns times y: the error of a float32 sum of as many terms (see softmax.magnitudes), halved by
    the root."""
    y, h = reference(x, residual, weight)
    return x.shape[1] / 2 * y.abs(), h.abs()


def unfused(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Launch an operator for each step: the normalization reads again what the addition has just written."""
    h = x + residual
    return torch.nn.functional.rms_norm(h, (h.shape[1],), weight, EPS), h


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        {"rows": 1, "columns": 1, "dtype": "float32"},
        {"rows": 5, "columns": 127, "dtype": "bfloat16"},
        {"rows": 5, "columns": 128, "dtype": "bfloat16"},
        {"rows": 5, "columns": 129, "dtype": "bfloat16"},
        {"rows": 17, "columns": 2053, "dtype": "bfloat16"},
        {"rows": 35, "columns": 2048, "dtype": "float32"},
    ),
    vary=("rows", "columns"),
    far=({"rows": (1 << 21) + 3, "columns": 2048, "dtype": "float32"},),
    reference=reference,
    outputs=("y", "h"),
    # Rounding y to bfloat16 alone costs 2^-8 = 3.9e-3; rounding anything on the way there costs more. mtol is for sums
    # one after another: half of a row's columns times 2^-24.
    tolerance={
        "float32": Tolerance(rtol=2e-6, atol=1e-6, mtol=2**-24),
        "bfloat16": Tolerance(rtol=4e-3, atol=1e-6, mtol=2**-24),
    },
    magnitudes=magnitudes,
    extreme=extreme,
    faults={"no eps": without_eps},
    limits=({"rows": 1, "columns": 32_768, "dtype": "bfloat16"}, {"rows": 2_053, "columns": 1, "dtype": "bfloat16"}),
    must_reach={"rows": 2_048, "columns": 32_768},
    gpu_limits=({"rows": 65_537, "columns": 1, "dtype": "bfloat16"},),  # 65,537 blocks that reduce
    compulsory_bytes=lambda rows, columns, dtype: BYTES[dtype] * (4 * rows * columns + columns),
    flops=lambda rows, columns, dtype: 5 * rows * columns,
)
