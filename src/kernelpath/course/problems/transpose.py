"""Transpose: out[j, i] = x[i, j] for a contiguous float32 or bfloat16 matrix of any shape; out is contiguous too."""

from __future__ import annotations

import torch

from kernelpath.course import draw
from kernelpath.course.problem import BYTES, EXACT, Problem


def inputs(rng: torch.Generator, rows: int, columns: int, dtype: str) -> tuple[torch.Tensor]:
    return (draw.normal(rng, rows, columns, dtype=dtype),)


def reference(x: torch.Tensor) -> torch.Tensor:
    return x.t().contiguous()


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        {"rows": 1, "columns": 1, "dtype": "float32"},
        {"rows": 31, "columns": 33, "dtype": "float32"},
        {"rows": 64, "columns": 64, "dtype": "bfloat16"},
        {"rows": 65, "columns": 63, "dtype": "bfloat16"},
        {"rows": 1, "columns": 1009, "dtype": "float32"},
        {"rows": 1009, "columns": 127, "dtype": "bfloat16"},
        {"rows": 127, "columns": 1009, "dtype": "float32"},
        {"rows": 512, "columns": 1024, "dtype": "float32"},
    ),
    vary=("rows", "columns"),
    far=({"rows": 65_540, "columns": 65_540, "dtype": "float32"},),
    reference=reference,
    tolerance={"float32": EXACT, "bfloat16": EXACT},  # nothing is computed; float32 by way of bfloat16 fails
    limits=(
        {"rows": 65_537, "columns": 1, "dtype": "bfloat16"},
        {"rows": 1, "columns": 65_537, "dtype": "bfloat16"},
    ),
    compulsory_bytes=lambda rows, columns, dtype: 2 * BYTES[dtype] * rows * columns,
)
