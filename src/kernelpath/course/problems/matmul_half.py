"""Matrix product of bfloat16 or float16 matrices of any size: out = a @ b with float32 sums, rounded once."""

from __future__ import annotations

import math

import torch

from kernelpath.course import draw
from kernelpath.course.problem import Problem, Tolerance
from kernelpath.course.problems import matmul
from kernelpath.course.problems.matmul import padded_with_products


def inputs(rng: torch.Generator, m: int, n: int, k: int, dtype: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Generate b with mean 0, as in matmul, and no large values, whose products would exceed float16."""
    return draw.normal(rng, m, k, dtype=dtype), draw.normal(rng, k, n, dtype=dtype, large=0).sub_(1)


def reference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.double() @ b.double()


def extreme(rng: torch.Generator, a: torch.Tensor, b: torch.Tensor) -> None:
    """Set integers whose sums cancel for even k, and an infinity at the ends of a and b for odd k."""
    (infinite if a.shape[1] % 2 else cancelling)(rng, a, b)


def infinite(rng: torch.Generator, a: torch.Tensor, b: torch.Tensor) -> None:
    """Set the last elements of a and b to infinity, which reaches one row and one column of the product only."""
    a[-1, -1] = float("inf")
    b[-1, -1] = -float("inf")


def cancelling(rng: torch.Generator, a: torch.Tensor, b: torch.Tensor) -> None:
    """Set integers up to 256 such that both halves of k cancel, except for one column of a.

    The magnitudes of the products sum to at most 2**24, so float32 sums are exact in any order, and out holds integers
    up to 256, which bfloat16 holds exactly. Sums in bfloat16 or float16 are inexact, or overflow.
    """
    k = a.shape[1]
    largest = min(256, math.isqrt((1 << 24) // k))

    def integers(*shape: int, below: int) -> torch.Tensor:
        return torch.randint(1 - below, below, shape, generator=rng, device=rng.device).to(a.dtype)

    left_half = integers(a.shape[0], k // 2, below=largest + 1)
    right = integers(k // 2, b.shape[1], below=largest)
    order = torch.randperm(k, generator=rng, device=rng.device)
    a.copy_(torch.cat([left_half, left_half], 1)[:, order])
    b.copy_(torch.cat([right, -right])[order])
    b[0] += integers(b.shape[1], below=2)


def summed_in_halves(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Round the sum of each half of k to the dtype of the inputs."""
    half = a.shape[1] // 2
    parts = (reference(a[:, :half], b[:half]), reference(a[:, half:], b[half:]))
    return parts[0].to(a.dtype).double() + parts[1].to(a.dtype).double()


PROBLEM = Problem(
    inputs=inputs,
    # Tiles are 64 to 256 wide and 16 to 64 deep, in rings of up to 8 stages. Rows of 16-byte vectors, and odd ones.
    cases=(
        {"m": 1, "n": 1, "k": 1, "dtype": "bfloat16"},
        {"m": 16, "n": 8, "k": 16, "dtype": "float16"},
        {"m": 33, "n": 65, "k": 31, "dtype": "bfloat16"},
        {"m": 64, "n": 72, "k": 40, "dtype": "bfloat16"},
        {"m": 129, "n": 136, "k": 80, "dtype": "float16"},
        {"m": 72, "n": 64, "k": 528, "dtype": "bfloat16"},
        {"m": 256, "n": 256, "k": 256, "dtype": "bfloat16"},
    ),
    vary=("m", "n", "k"),
    far=(
        {"m": (1 << 16) + 3, "n": 1 << 16, "k": 8, "dtype": "bfloat16"},
        {"m": 524_256, "n": 8, "k": 8_200, "dtype": "bfloat16"},
        {"m": 8, "n": 1_572_816, "k": 2_736, "dtype": "bfloat16"},
    ),
    reference=reference,
    # Half a unit in the last place is at most 2^-8 of a bfloat16 and 2^-11 of a float16. Float32 sums, also those of
    # tensor cores, which truncate, are off by far less than 1e-4 of the root mean square.
    tolerance={
        "bfloat16": Tolerance(rtol=1.01 * 2**-8, atol=1e-4),
        "float16": Tolerance(rtol=1.01 * 2**-11, atol=1e-4),
    },
    extreme=extreme,
    faults={
        "the rest of a tile times 0": padded_with_products,
        "sums rounded halfway": summed_in_halves,
    },
    limits=tuple({**case, "dtype": "bfloat16"} for case in matmul.PROBLEM.limits),
    must_reach=matmul.BEYOND_A_TILE,
    gpu_limits=({"m": 65_537, "n": 1, "k": 1, "dtype": "bfloat16"},),
    compulsory_bytes=lambda m, n, k, dtype: 2 * (m * k + k * n + m * n),
    flops=lambda m, n, k, dtype: 2 * m * n * k,
)
