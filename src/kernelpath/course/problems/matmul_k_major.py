"""Matrix product of two bfloat16 matrices that are stored along k: out = a @ b.T with float32 sums, rounded once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from kernelpath.course import draw, sweeps
from kernelpath.course.problem import Case
from kernelpath.course.problems import matmul, matmul_half


def inputs(rng: torch.Generator, m: int, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a, m x k, and b, n x k, of mean 0 and without large values, as in matmul_half."""
    return draw.normal(rng, m, k, dtype="bfloat16"), draw.normal(rng, n, k, dtype="bfloat16", large=0).sub_(1)


def reference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.double() @ b.double().T


def extreme(rng: torch.Generator, a: torch.Tensor, b: torch.Tensor) -> None:
    """Set the values of matmul_half, by whether k is an even or odd multiple of 8."""
    (matmul_half.infinite if a.shape[1] % 16 else matmul_half.cancelling)(rng, a, b.T)


def padded_with_products(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return matmul.padded_with_products(a, b.T)


def summed_in_halves(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return matmul_half.summed_in_halves(a, b.T)


def library(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Compute the baseline: cuBLAS."""
    return a @ b.T


PROBLEM = replace(
    matmul_half.PROBLEM,
    inputs=inputs,
    # k is a multiple of 8: TMA wants rows that begin at multiples of 16 bytes. Tiles are 64 to 256 wide and 64 deep, in
    # rings of up to 8 stages, and 528 fills 9 of them.
    cases=(
        {"m": 1, "n": 8, "k": 8},
        {"m": 72, "n": 264, "k": 528},
        {"m": 130, "n": 65, "k": 328},
        {"m": 256, "n": 256, "k": 256},
    ),
    vary=("m",),
    reference=reference,
    extreme=extreme,
    faults={"the rest of a tile times 0": padded_with_products, "sums rounded halfway": summed_in_halves},
    limits=({"m": 1_037, "n": 8, "k": 8}, {"m": 8, "n": 1_032, "k": 8}, {"m": 8, "n": 8, "k": 2_056}),
    gpu_limits=({"m": 65_537, "n": 8, "k": 8},),
    far=(),
    compulsory_bytes=lambda m, n, k: 2 * (m * k + n * k + m * n),
    flops=lambda m, n, k: 2 * m * n * k,
    product_dtype="bfloat16",
)

SWEEP: Sequence[Case] = tuple(case for case in sweeps.products() if case["k"] % 8 == 0)
