"""Sum: out[0] = x[0] + x[1] + … for a float32 vector of any length, contiguous but not always aligned to 16 bytes."""

from __future__ import annotations

import torch

from kernelpath.course import draw
from kernelpath.course.problem import Problem, Tolerance


def inputs(rng: torch.Generator, n: int) -> tuple[torch.Tensor]:
    """Generate positive values, so that the sum equals the sum of the magnitudes, which bounds any error."""
    x = draw.normal(rng, n)
    return (x if x.is_meta else x.abs_(),)


def reference(x: torch.Tensor) -> torch.Tensor:
    return x.double().sum().reshape(1)


def extreme(rng: torch.Generator, x: torch.Tensor) -> None:
    """Set, by the length modulo 4: huge values, an infinity, two infinities or a NaN, integers that cancel."""
    n = x.numel()
    first, second = torch.randint(n, (2,), generator=rng, device=rng.device).tolist()
    if n % 4 == 0:
        x *= 1e30
    elif n % 4 == 1:
        x[first] = -torch.inf
    elif n % 4 == 2:
        x[second] = torch.inf
        x[first] = -torch.inf
        x[second] = x[second] if second != first else torch.nan
    else:
        x.copy_(cancelling(rng, n))


def cancelling(rng: torch.Generator, n: int) -> torch.Tensor:
    """Return integers of both signs whose sum is 1, with zeros of both signs and denormals, for odd n.

    The magnitudes sum to less than 2**24, so that float32 adds them exactly, in any order.
    """
    half = torch.randint(1, (1 << 23) // n + 2, (n // 2,), generator=rng, device=rng.device).float()
    half[::7] = 0
    half[1::7] = 1e-40
    values = torch.cat([torch.ones(1, device=rng.device), half, -half])
    return values[torch.randperm(n, generator=rng, device=rng.device)]


def unordered(rng: torch.Generator, x: torch.Tensor) -> None:
    """Set three huge values and their negatives, which make a float64 sum lose all other terms."""
    pairs = min(3, x.numel() // 2)
    indices = torch.randperm(x.numel(), generator=rng, device=rng.device)[: 2 * pairs]
    x[indices] = 2.0**100 * torch.tensor([1.0, -1.0], device=rng.device).repeat(pairs)


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        {"n": 1},
        {"n": 31},
        {"n": 256},
        {"n": 257},
        {"n": 4098},
        {"n": 10_007},
        {"n": 65_536},
        {"n": 1_048_571},
    ),
    vary=("n",),
    far=({"n": (1 << 32) + 67},),
    reference=reference,
    # In units of the sum of the magnitudes. A tree of float32 additions is off by 1e-7, 32,768 sums of warps that one
    # accumulator collects by 3e-6. A million values one by one are off by 4e-5 to 1e-4, all in one direction: what is
    # less than half a unit in the last place of the sum is lost. TF32 or float16 inside is off by up to 2e-4 where
    # values are few; where they are many its errors average out, and the integers that cancel show it.
    tolerance={"float32": Tolerance(rtol=2e-5, atol=0.0)},
    extreme=extreme,
    unordered=unordered,
    faults={
        "infinities made finite": lambda x: x.double().clamp(-1e38, 1e38).sum().reshape(1),
        "magnitudes added": lambda x: x.double().abs().sum().reshape(1),
        "the range of float16": lambda x: x.half().double().sum().reshape(1),
    },
    compulsory_bytes=lambda n: 4 * n,
    flops=lambda n: n,
)
