"""Matrix addition: out = x + y for float32 matrices whose rows are contiguous, but may have gaps between them."""

from __future__ import annotations

from dataclasses import replace

import torch

from kernelpath.course import draw
from kernelpath.course.problems import vector_add


def inputs(rng: torch.Generator, rows: int, columns: int, pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return x, the left part of a matrix that is `pad` columns wider, and y, the right part of one 2 pad wider."""
    x = draw.normal(rng, rows, columns + pad)
    y = draw.normal(rng, rows, columns + 2 * pad)
    return x[:, :columns], y[:, 2 * pad :]


PROBLEM = replace(
    vector_add.PROBLEM,
    inputs=inputs,
    cases=(
        {"rows": 1, "columns": 1, "pad": 0},
        {"rows": 7, "columns": 31, "pad": 0},
        {"rows": 8, "columns": 32, "pad": 3},
        {"rows": 9, "columns": 33, "pad": 5},
        {"rows": 8, "columns": 32, "pad": 4},
        {"rows": 127, "columns": 509, "pad": 0},
        {"rows": 256, "columns": 512, "pad": 8},
    ),
    vary=("rows", "columns"),
    far=({"rows": (1 << 18) + 16, "columns": 1 << 14, "pad": 8},),
    limits=({"rows": 65_537, "columns": 1, "pad": 0}, {"rows": 1, "columns": 200_003, "pad": 0}),
    gpu_limits=({"rows": 500_000, "columns": 1, "pad": 0},),  # a block of 8 rows still has a number along y
    compulsory_bytes=lambda rows, columns, pad: 12 * rows * columns,
    flops=lambda rows, columns, pad: rows * columns,
)
