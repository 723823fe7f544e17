"""Matrix product with what follows it in a linear layer: out = activation(a @ b + bias), rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from kernelpath.course import draw
from kernelpath.course.problem import Case
from kernelpath.course.problems import matmul_half, matmul_layouts

# The activations, with gelu(x) = x / 2 (1 + erf(x / sqrt(2))).
ACTIVATIONS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "none": lambda x: x,
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
}


def inputs(
    rng: torch.Generator, m: int, n: int, k: int, dtype: str, layout: str, bias: bool, activation: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, str]:
    """Generate sums of mean 0 and a deviation near 1 if gelu follows, where it differs from its approximations."""
    a, b = matmul_layouts.inputs(rng, m, n, k, dtype, layout)
    if activation == "gelu":
        a.clamp_(-4, 4).mul_(2.0 ** -round(math.log2(2 * k) / 2))
        added = draw.normal(rng, n, dtype=dtype, large=0, mean=0.0)
    else:
        added = draw.normal(rng, n, dtype=dtype).mul_(k**0.5)
    return a, b, added if bias else None, activation


def library(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, activation: str) -> torch.Tensor:
    """Compute the baseline: cuBLAS, which adds the bias, and an operator for the activation."""
    return ACTIVATIONS[activation](a @ b if bias is None else torch.addmm(bias, a, b))


def extreme(rng: torch.Generator, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, activation: str) -> None:
    """Set the values of matmul_half. An infinity times 0 is NaN, which an activation may or may not keep."""
    if a.shape[1] % 2 == 0 or activation == "none":
        matmul_half.extreme(rng, a, b)


def _with_epilogue(product: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    """Return the reference, or a fault, given the product."""

    def compute(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, activation: str) -> torch.Tensor:
        biased = product(a, b)
        return ACTIVATIONS[activation](biased if bias is None else biased + bias.double())

    return compute


def _of(m: int, n: int, k: int, dtype: str, layout: str = "nn", bias: bool = False, activation: str = "none") -> Case:
    return {"m": m, "n": n, "k": k, "dtype": dtype, "layout": layout, "bias": bias, "activation": activation}


# The common part of the timed cases.
SQUARE = _of(0, 0, 0, "bfloat16")

PROBLEM = replace(
    matmul_half.PROBLEM,
    inputs=inputs,
    cases=(
        _of(1, 1, 1, "bfloat16"),
        _of(16, 264, 136, "float16", bias=True),
        _of(290, 265, 31, "bfloat16", "ts", bias=True),
        _of(130, 72, 40, "bfloat16", "sn", bias=True, activation="gelu"),
        _of(136, 72, 104, "bfloat16", "nt", activation="relu"),
        _of(1100, 144, 80, "bfloat16", bias=True, activation="relu"),  # more rows of tiles than a group has
    ),
    # Rows of a and of out and columns of b that begin past 2**31, and steps along k that get there.
    far=(_of(131_080, 131_072, 32_776, "bfloat16", "nt"), _of(8, 1_572_816, 2_736, "bfloat16")),
    reference=_with_epilogue(matmul_half.reference),
    extreme=extreme,
    faults={name: _with_epilogue(fault) for name, fault in matmul_half.PROBLEM.faults.items()},
    # What divides the extents, layout and activation are those of a case, so that Triton need not compile again.
    limits=tuple(
        _of(m, n, k, "bfloat16", "nt", activation="relu") for m, n, k in ((2056, 8, 8), (8, 2056, 8), (8, 8, 4104))
    ),
    gpu_limits=tuple(_of(**case) for case in matmul_half.PROBLEM.gpu_limits),
    compulsory_bytes=lambda m, n, k, dtype, layout, bias, activation: 2 * (m * k + k * n + m * n + n * bias),
    flops=lambda m, n, k, dtype, layout, bias, activation: 2 * m * n * k,
)
