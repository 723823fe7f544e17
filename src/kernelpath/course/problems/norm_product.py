"""The RMS norm of one token and a product with a matrix: y = W h, h = x * weight / sqrt(mean(x^2) + eps)."""

from __future__ import annotations

import torch

from kernelpath.course import draw
from kernelpath.course.problem import Problem, Tolerance
from kernelpath.course.problems.add_rmsnorm import EPS


def inputs(rng: torch.Generator, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return x and weight of k elements, and w of n x k, whose values have mean 0."""
    x = draw.normal(rng, k, dtype="bfloat16", large=k // 1000)
    return x, draw.normal(rng, k, dtype="bfloat16", large=0), draw.normal(rng, n, k, dtype="bfloat16", large=0).sub_(1)


def extreme(rng: torch.Generator, x: torch.Tensor, weight: torch.Tensor, w: torch.Tensor) -> None:
    """Make x so small that eps decides, or so large that float16 would overflow."""
    x *= 1e-4 if x.numel() % 16 else 1e12


def normalized(x: torch.Tensor, weight: torch.Tensor, eps: float = EPS) -> torch.Tensor:
    return x.double() * (x.double().square().mean() + eps).rsqrt() * weight.double()


def reference(x: torch.Tensor, weight: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return w.double() @ normalized(x, weight)


def library(x: torch.Tensor, weight: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Compute by torch's operators: a kernel for the norm, and cuBLAS."""
    return w @ torch.nn.functional.rms_norm(x, x.shape, weight, EPS)


PROBLEM = Problem(
    inputs=inputs,
    # 8 elements are the shortest row of 16 bytes; 2048 and 4096 are what a warp or a block holds in registers.
    cases=(
        {"n": 1, "k": 8},
        {"n": 65, "k": 264},
        {"n": 33, "k": 2056},
        {"n": 40, "k": 4096},
        {"n": 24, "k": 8200},
        {"n": 130, "k": 2048},
    ),
    vary=("n",),
    reference=reference,
    # h may be rounded to bfloat16, by up to 2^-9 of each term: the sum is off by 2^-9 of the root mean square, and five
    # times that for the worst element. y is rounded once.
    tolerance={"bfloat16": Tolerance(rtol=1.01 * 2**-8, atol=1.5e-2)},
    extreme=extreme,
    faults={"no eps": lambda x, weight, w: w.double() @ normalized(x, weight, 0.0)},
    limits=({"n": 65_537, "k": 8}, {"n": 1, "k": 65_544}),
    must_reach={"n": 65_537, "k": 65_536},
    far=({"n": (1 << 19) + 3, "k": 8_192},),
    compulsory_bytes=lambda n, k: 2 * (n * k + 2 * k + n),
    flops=lambda n, k: 2 * n * k + 4 * k,
)
