"""GELU: out = x * Phi(x), where Phi is the normal distribution function, exact by erf or approximated by tanh."""

from __future__ import annotations

import math

import torch

from kernelpath.course import draw
from kernelpath.course.problem import ANY_FINITE, BYTES, Problem, Tolerance

FORMULAS = ("none", "tanh")


def inputs(rng: torch.Generator, n: int, dtype: str, approximate: str) -> tuple[torch.Tensor, str]:
    """Generate normal values; the last one is at least 1, so that a tolerance never depends on Phi's tail alone."""
    x = draw.normal(rng, n, dtype=dtype)
    if not x.is_meta:
        x[-1:].abs_().clamp_(min=1)
    return x, approximate


def reference(x: torch.Tensor, approximate: str) -> torch.Tensor:
    return torch.nn.functional.gelu(x.double(), approximate=approximate)


def by_hand(x: torch.Tensor, approximate: str) -> torch.Tensor:
    """Compute the formula, an operator for each step: 21 passes over memory by tanh, 11 by erf, where 2 suffice."""
    if approximate == "tanh":
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))))
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def extreme(rng: torch.Generator, x: torch.Tensor, approximate: str) -> None:
    """Set a third of the elements: for even n values whose cube overflows, else NaN, zeros, a denormal and the tail."""
    special = [torch.nan, -0.0, 0.0, 1e-40, -3.0, -5.0, -9.0, 12.0] if x.numel() % 2 else [1e30, -1e30, 3e38, -3e38]
    draw.special_(rng, x, special)


def quotient_of_exponentials(x: torch.Tensor, approximate: str) -> torch.Tensor:
    """Compute tanh(z) as (exp(2z) - 1) / (exp(2z) + 1) in float32: inf / inf for large z."""
    z = math.sqrt(2 / math.pi) * (x.float() + 0.044715 * x.float() ** 3)
    return (0.5 * x * (1 + ((2 * z).exp() - 1) / ((2 * z).exp() + 1))).double()


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        {"n": 1, "dtype": "float32", "approximate": "none"},
        {"n": 31, "dtype": "bfloat16", "approximate": "tanh"},
        {"n": 257, "dtype": "float32", "approximate": "tanh"},
        {"n": 1024, "dtype": "bfloat16", "approximate": "none"},
        {"n": 4096, "dtype": "float32", "approximate": "tanh"},
        {"n": 10_007, "dtype": "bfloat16", "approximate": "none"},
        {"n": 65_538, "dtype": "bfloat16", "approximate": "tanh"},
        {"n": 131_072, "dtype": "float32", "approximate": "none"},
    ),
    vary=("n",),
    far=(
        {"n": (1 << 32) + 67, "dtype": "float32", "approximate": "tanh"},
        {"n": (1 << 32) + 67, "dtype": "bfloat16", "approximate": "none"},
    ),
    reference=reference,
    tolerance={
        # 1 + erf and 1 + tanh cancel in the tail, where float32 leaves an error of 3e-7, and tanh.approx.f32 6e-6 (on
        # an H200; 2^-11 is promised). out has this error times |x| / 2: mtol. The other formula is off by 5e-4, and so
        # is TF32 inside.
        "float32": Tolerance(rtol=1e-5, atol=1e-5, mtol=2**-18),
        # Rounding to bfloat16 costs 2^-8 = 3.9e-3, bfloat16 inside 1e-2 and more.
        "bfloat16": Tolerance(rtol=4e-3, atol=1e-5, mtol=2**-18),
    },
    magnitudes=lambda x, approximate: x.double().abs(),
    extreme=extreme,
    domain=ANY_FINITE,
    faults={
        "a NaN taken for a number": lambda x, approximate: reference(x.nan_to_num(0.0), approximate),
        "tanh as a quotient of exponentials": quotient_of_exponentials,
    },
    compulsory_bytes=lambda n, dtype, approximate: 2 * BYTES[dtype] * n,
    flops=lambda n, dtype, approximate: 10 * n,
)
