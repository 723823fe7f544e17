"""Inclusive scan: out[i] = x[0] + … + x[i] for an int32 vector, contiguous but not always aligned to 16 bytes."""

from __future__ import annotations

import torch

from kernelpath.course import draw
from kernelpath.course.problem import EXACT, Problem

_LARGE = 1 << 30


def inputs(rng: torch.Generator, n: int) -> tuple[torch.Tensor]:
    """Generate small values of both signs. Their mean is 1, so that a sum of up to 2**30 of them fits in int32."""
    return (draw.integers(rng, n, least=-7, most=9, dtype="int32"),)


def reference(x: torch.Tensor) -> torch.Tensor:
    return x.long().cumsum(0).int()


def extreme(rng: torch.Generator, x: torch.Tensor) -> None:
    """Set pairs of 2**30 and -2**30 at random places, in this order: no prefix sum overflows, and no float holds it."""
    pairs = min(50, x.numel() // 2)
    places = torch.randperm(x.numel(), generator=rng, device=rng.device)[: 2 * pairs].sort().values
    x[places] = torch.tensor([_LARGE, -_LARGE], dtype=torch.int32, device=rng.device).repeat(pairs)


def unordered(rng: torch.Generator, x: torch.Tensor) -> None:
    """Let the prefix sums stay at 0, at 1, and at the greatest int32 for a quarter each, or at 0, -1, and the least.

    Integers add exactly in any order, so any values show an order that a kernel must not depend on. With these, a
    kernel that takes such a number for a sum which is still missing waits forever.
    """
    sign = 1 if x.numel() % 2 == 0 else -1
    quarter = x.numel() // 4
    x[: 3 * quarter] = 0
    # No sum of neighbors overflows: the last quarter leads back towards 0.
    x[3 * quarter :].abs_().mul_(-sign)
    x[quarter] = sign
    x[2 * quarter] = (1 << 31) - 2 if sign > 0 else 1 - (1 << 31)


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        {"n": 1},
        {"n": 31},
        {"n": 257},
        {"n": 1024},
        {"n": 4097},
        {"n": 10_007},
        {"n": 65_536},
        # On a GPU of five multiprocessors, more tiles of up to 29 elements per thread than fit at once: a block that
        # waits for one that has not started then waits forever.
        {"n": 300_007},
    ),
    vary=("n",),
    reference=reference,
    tolerance={"int32": EXACT},
    extreme=extreme,
    unordered=unordered,
    faults={"sums in float32": lambda x: x.double().cumsum(0).float().int()},
    compulsory_bytes=lambda n: 8 * n,
    flops=lambda n: n,
)
