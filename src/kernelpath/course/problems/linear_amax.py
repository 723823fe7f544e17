"""Linear layer with ReLU and the largest value of each row: out = max(x @ weight.T + bias, 0), amax = out.amax(1).

amax is that of the float32 values, before out is rounded. A kernel that quantizes out by rows needs no other pass then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from kernelpath.course import draw
from kernelpath.course.problem import Tolerance
from kernelpath.course.problems import gemm_epilogue, matmul_half

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def inputs(rng: torch.Generator, m: int, n: int, k: int) -> Inputs:
    x = draw.normal(rng, m, k, dtype="bfloat16")
    weight = draw.normal(rng, n, k, dtype="bfloat16", large=0, mean=0.0).mul_(k**-0.5)
    return x, weight, draw.normal(rng, n, dtype="bfloat16", large=0).sub_(1)


def extreme(rng: torch.Generator, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> None:
    """Set infinities where k is an odd multiple of 8, which multiply the padding of a tile; else cancelling values."""
    (gemm_epilogue.cancelling if x.shape[1] % 16 == 0 else gemm_epilogue.infinite)(rng, x, weight.T, bias)


def of_product(product: Callable[..., Any]) -> Any:
    """Return the reference, or a fault, given the product."""

    def compute(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out = (product(x, weight.T) + bias.double()).clamp(min=0)
        return out, out.amax(1)

    return compute


PROBLEM = replace(
    matmul_half.PROBLEM,
    inputs=inputs,
    # Tiles are 64 to 256 wide and 64 deep. TMA takes rows of 16 bytes, which is 8 elements.
    cases=(
        {"m": 1, "n": 8, "k": 8},
        {"m": 65, "n": 72, "k": 136},
        {"m": 129, "n": 264, "k": 208},  # five tiles of 64 along n, whose maxima meet
    ),
    vary=("m",),
    far=(),
    limits=({"m": 1_037, "n": 8, "k": 8}, {"m": 8, "n": 1_032, "k": 8}, {"m": 8, "n": 8, "k": 2_056}),
    gpu_limits=(),
    outputs=("out", "amax"),
    reference=of_product(matmul_half.reference),
    extreme=extreme,
    faults={name: of_product(fault) for name, fault in matmul_half.PROBLEM.faults.items()},
    # Float32 sums, also those of tensor cores, which truncate, are off by far less than 1e-4 of the root mean square.
    # The maximum of rounded values is off by up to 2^-8 of itself, 4e-3.
    tolerance={"bfloat16": matmul_half.PROBLEM.tolerance["bfloat16"], "float32": Tolerance(rtol=0.0, atol=2e-4)},
    compulsory_bytes=lambda m, n, k: 2 * (m * k + n * k + n + m * n) + 4 * m,
    flops=lambda m, n, k: 2 * m * n * k,
)
