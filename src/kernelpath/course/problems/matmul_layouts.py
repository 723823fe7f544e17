"""Matrix product of bfloat16 or float16 matrices, each stored by rows or by columns: out = a @ b, float32 sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from kernelpath.course import sweeps
from kernelpath.course.problem import Case
from kernelpath.course.problems import matmul_half

# The storage of a and b in BLAS's letters: n by rows, t by columns, as the transpose of a contiguous matrix.
LAYOUTS = ("nn", "nt", "tn", "tt")


def inputs(rng: torch.Generator, m: int, n: int, k: int, dtype: str, layout: str) -> tuple[torch.Tensor, torch.Tensor]:
    a, b = matmul_half.inputs(rng, m, n, k, dtype)
    return stored(a, layout[0]), stored(b, layout[1])


def stored(x: torch.Tensor, layout: str) -> torch.Tensor:
    """Store a matrix by rows (n) or by columns (t), or as every second column of a wider one (s)."""
    if layout == "s":
        # A kernel that ignores the stride reads NaN.
        wider = x.new_full((x.shape[0], 2 * x.shape[1] + 1), torch.nan)
        return wider[:, 1::2].copy_(x)
    return x if layout == "n" else x.T.contiguous().T


def extreme(rng: torch.Generator, a: torch.Tensor, b: torch.Tensor) -> None:
    """Set the values of matmul_half, by whether k is an even or odd multiple of 8."""
    (matmul_half.infinite if a.shape[1] % 16 else matmul_half.cancelling)(rng, a, b)


def library(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Compute the baseline: cuBLAS."""
    return a @ b


PROBLEM = replace(
    matmul_half.PROBLEM,
    inputs=inputs,
    # Rows and columns of tensors that TMA can describe begin at multiples of 16 bytes: sizes are multiples of 8.
    cases=(
        {"m": 1, "n": 8, "k": 8, "dtype": "bfloat16", "layout": "nn"},
        {"m": 2056, "n": 2312, "k": 24, "dtype": "bfloat16", "layout": "nn"},  # more tiles of 128 x 256 than 132
        {"m": 16, "n": 136, "k": 200, "dtype": "float16", "layout": "nt"},
        {"m": 72, "n": 64, "k": 528, "dtype": "bfloat16", "layout": "tn"},
        {"m": 136, "n": 264, "k": 72, "dtype": "bfloat16", "layout": "tt"},
        {"m": 129, "n": 136, "k": 80, "dtype": "float16", "layout": "nn"},
    ),
    vary=("m",),
    limits=(
        {"m": 65_537, "n": 8, "k": 8, "dtype": "bfloat16", "layout": "nn"},
        {"m": 8, "n": 8, "k": 4_104, "dtype": "bfloat16", "layout": "nn"},
    ),
    extreme=extreme,
    far=(),
    gpu_limits=(),
    compulsory_bytes=lambda m, n, k, dtype, layout: 2 * (m * k + k * n + m * n),
    flops=lambda m, n, k, dtype, layout: 2 * m * n * k,
)

# GEMMs whose rows begin at multiples of 16 bytes, and a large one in each layout.
SWEEP: Sequence[Case] = (
    *({**case, "dtype": "bfloat16", "layout": "nn"} for case in sweeps.products() if case["n"] % 8 == 0),
    *({"m": 4096, "n": 4096, "k": 4096, "dtype": "bfloat16", "layout": layout} for layout in LAYOUTS[1:]),
)
