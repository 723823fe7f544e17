"""Softmax and its gradient: out as in softmax, and dx = y * (dout - sum(y * dout)) with y the softmax of the row."""

from __future__ import annotations

import torch

from kernelpath.course import draw
from kernelpath.course.problem import BYTES, Problem, Tolerance
from kernelpath.course.problems import softmax


def inputs(rng: torch.Generator, rows: int, columns: int, dtype: str) -> tuple[torch.Tensor, torch.Tensor]:
    """x as for softmax. The gradient of the output has a mean of 1, so that the sum in the formula matters."""
    (x,) = softmax.inputs(rng, rows, columns, dtype)
    return x, draw.normal(rng, rows, columns, dtype=dtype) + 1


def reference(x: torch.Tensor, dout: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = softmax.reference(x)
    return y, gradient(y, dout.double())


def gradient(y: torch.Tensor, dout: torch.Tensor) -> torch.Tensor:
    return y * (dout - (y * dout).sum(dim=1, keepdim=True))


def unfused(x: torch.Tensor, dout: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Both formulas, an operator for each step: 8 passes over memory and 9 where 2 and 3 would do."""
    y = softmax.unfused(x)
    return y, gradient(y, dout)


def extreme(rng: torch.Generator, x: torch.Tensor, dout: torch.Tensor) -> None:
    """x as for softmax; every fifth gradient is 0."""
    softmax.extreme(rng, x)
    dout[:, ::5] = 0


def maximum_from_zero(x: torch.Tensor, dout: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The maximum is looked for from 0 on."""
    y = softmax.maximum_from_zero(x)
    return y, gradient(y, dout.double())


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        {"rows": 5, "columns": 257, "dtype": "bfloat16"},
        {"rows": 1, "columns": 1, "dtype": "float32"},
        {"rows": 33, "columns": 31, "dtype": "float32"},
        {"rows": 4, "columns": 4099, "dtype": "float32"},
        {"rows": 64, "columns": 1024, "dtype": "bfloat16"},
    ),
    vary=("rows", "columns"),
    reference=reference,
    tolerance={
        "float32": Tolerance(rtol=2e-5, atol=1e-5),
        "bfloat16": Tolerance(rtol=8e-3, atol=1e-2),
    },
    extreme=extreme,
    faults={"a maximum that begins at 0": maximum_from_zero},
    limits=({"rows": 1, "columns": 32_768, "dtype": "bfloat16"},),
    gpu_limits=({"rows": 65_537, "columns": 1, "dtype": "float32"},),
    outputs=("out", "dx"),
    compulsory_bytes=lambda rows, columns, dtype: 5 * BYTES[dtype] * rows * columns,
    flops=lambda rows, columns, dtype: 9 * rows * columns,
)
