"""Matrix product with an epilogue: out = gelu(a @ b + bias) * scale[:, None] + residual, rounded once.

GELU is the one by tanh, as in GPT-2 and Gemma: gelu(x) = x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch.nn.functional import gelu

from kernelpath.course import draw
from kernelpath.course.problems import gelu as gelu_alone
from kernelpath.course.problems import matmul_half

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def inputs(rng: torch.Generator, m: int, n: int, k: int, dtype: str) -> Inputs:
    """Scale b so that many sums are where GELU bends, and most of out depends on them, not on the residual."""
    a = draw.normal(rng, m, k, dtype=dtype)
    b = draw.normal(rng, k, n, dtype=dtype, large=0, mean=0.0).mul_((k / 2) ** -0.5)
    bias = draw.normal(rng, n, dtype=dtype, large=0)
    return a, b, bias, draw.scales(rng, m).mul_(64), draw.normal(rng, m, n, dtype=dtype, large=0)


def extreme(
    rng: torch.Generator,
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor,
    scale: torch.Tensor,
    residual: torch.Tensor,
) -> None:
    """Set integers up to 256 whose sums cancel for even k, and an infinite row and column for odd k."""
    (infinite if a.shape[1] % 2 else cancelling)(rng, a, b, bias)


def cancelling(rng: torch.Generator, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> None:
    matmul_half.cancelling(rng, a, b)
    bias.round_()  # so that sums may begin with it


def infinite(rng: torch.Generator, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> None:
    """Make a row and a column of the product infinite, by one product of positive factors each.

    GELU of minus infinity may differ between implementations.
    """
    for line in (a[:, -1], b[-1]):
        line.abs_().clamp_(min=1)
        line[-1] = float("inf")


def of_product(product: Callable[..., Any], activation: Callable[..., Any]) -> Any:
    """Return the reference, or a fault, given the product and the activation."""

    def compute(
        a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor, scale: torch.Tensor, residual: torch.Tensor
    ) -> torch.Tensor:
        activated: torch.Tensor = activation(product(a, b) + bias.double(), approximate="tanh")
        return activated * scale.double()[:, None] + residual.double()

    return compute


PROBLEM = replace(
    matmul_half.PROBLEM,
    inputs=inputs,
    cases=(
        {"m": 72, "n": 56, "k": 104, "dtype": "float16"},
        {"m": 1, "n": 1, "k": 1, "dtype": "bfloat16"},
        {"m": 33, "n": 65, "k": 31, "dtype": "bfloat16"},
        {"m": 130, "n": 136, "k": 80, "dtype": "float16"},
        {"m": 328, "n": 272, "k": 16, "dtype": "bfloat16"},  # bytes of out and residual, more than those of a and b
    ),
    # What divides the extents, and the dtype, are those of the first case, so that Triton need not compile again.
    limits=(
        {"m": 2_056, "n": 8, "k": 8, "dtype": "float16"},
        {"m": 8, "n": 2_056, "k": 8, "dtype": "float16"},
        {"m": 8, "n": 8, "k": 4_104, "dtype": "float16"},
    ),
    reference=of_product(matmul_half.reference, gelu),
    extreme=extreme,
    faults={
        **{name: of_product(fault, gelu) for name, fault in matmul_half.PROBLEM.faults.items()},
        "tanh as a quotient of exponentials": of_product(matmul_half.reference, gelu_alone.quotient_of_exponentials),
    },
    compulsory_bytes=lambda m, n, k, dtype: 2 * (m * k + k * n + 2 * m * n + n) + 4 * m,
)
