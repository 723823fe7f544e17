"""Bias and activation: out = relu(x + bias) for a matrix and one bias per column, what follows a linear layer."""

from __future__ import annotations

import torch

from kernelpath.course import draw
from kernelpath.course.problem import BYTES, Problem, Tolerance


def inputs(rng: torch.Generator, rows: int, columns: int, dtype: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return x of mean 1, and biases of mean -1, so that half of the sums are negative."""
    return draw.normal(rng, rows, columns, dtype=dtype), draw.normal(rng, columns, dtype=dtype, large=0, mean=-1.0)


def reference(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.relu(x.double() + bias.double())


def unfused(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Compute by the formula: two kernels, with the sum in memory between them."""
    return torch.relu(x + bias)


def extreme(rng: torch.Generator, x: torch.Tensor, bias: torch.Tensor) -> None:
    """Set infinities and NaN, which torch.relu keeps, and sums that cancel; no denormals, as fast math is allowed."""
    x[::3] = -bias
    draw.any_bits_(rng, x, denormal=False)


PROBLEM = Problem(
    inputs=inputs,
    # The first serves vectors and says most: a wrong kernel is compiled once.
    cases=(
        {"rows": 32, "columns": 2048, "dtype": "float32"},
        {"rows": 7, "columns": 1024, "dtype": "bfloat16"},
        {"rows": 31, "columns": 1009, "dtype": "float32"},
        {"rows": 1, "columns": 5, "dtype": "float32"},
        {"rows": 3, "columns": 127, "dtype": "bfloat16"},
        {"rows": 129, "columns": 48, "dtype": "float16"},
    ),
    vary=("rows", "columns"),
    limits=({"rows": 65_537, "columns": 3, "dtype": "float32"}, {"rows": 1, "columns": 131_075, "dtype": "float32"}),
    far=({"rows": (1 << 21) + 3, "columns": 2048, "dtype": "float32"},),
    reference=reference,
    tolerance={
        # A sum is rounded once, by 2^-24 = 6.0e-8 at most. TF32 inside is off by 2^-11.
        "float32": Tolerance(rtol=6.0e-8, atol=0.0),
        # 2^-8 and 2^-11 for one rounding; the sum of two values of these dtypes is nearly exact in float32.
        "bfloat16": Tolerance(rtol=3.91e-3, atol=0.0),
        "float16": Tolerance(rtol=4.89e-4, atol=0.0),
    },
    extreme=extreme,
    faults={"a NaN taken for a negative number": lambda x, bias: reference(x.nan_to_num(-1e30, 1e30, -1e30), bias)},
    compulsory_bytes=lambda rows, columns, dtype: BYTES[dtype] * (2 * rows + 1) * columns,
    flops=lambda rows, columns, dtype: 2 * rows * columns,
)
