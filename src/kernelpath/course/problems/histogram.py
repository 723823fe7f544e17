"""Histogram: out[b] = how many elements of x are b, for bytes with 256 bins and int32 values with up to 65,536."""

from __future__ import annotations

import math

import torch

from kernelpath.course import draw
from kernelpath.course.problem import BYTES, EXACT, Problem

DISTRIBUTIONS = ("uniform", "sorted", "equal", "zipf")


def inputs(rng: torch.Generator, n: int, bins: int, dtype: str, distribution: str) -> tuple[torch.Tensor, int]:
    """Generate values of 0..bins - 1, one of which is bins - 1 in any case.

    Args:
        distribution: "uniform": all values are equally likely. "sorted": the same values in order. "equal": all other
            values are the same. "zipf": the k-th most frequent value is about k times as rare as the first, in random
            order of values.
    """
    if distribution == "equal":
        values = torch.randint(bins, (1,), generator=rng, device=rng.device).expand(n)
    elif distribution == "zipf":
        # The exponential of a number below log(bins) is between k and k + 1 with a probability near 1 / (k log(bins)).
        rank = torch.rand(n, generator=rng, device=rng.device).mul_(math.log(bins)).exp_().long() - 1
        values = torch.randperm(bins, generator=rng, device=rng.device)[rank.clamp_(0, bins - 1)]
    else:
        values = torch.randint(bins, (n,), generator=rng, device=rng.device)
    # The elements of an expanded tensor share memory. Only in a copy can one of them be set.
    values = values.to(getattr(torch, dtype), copy=True)
    # With a step of n, this is a single element.
    values[n // 2 :: n] = bins - 1
    return values.sort().values if distribution == "sorted" else values, bins


def reference(x: torch.Tensor, bins: int) -> torch.Tensor:
    """Count only values that have a bin."""
    has_bin = (x >= 0) & (x.long() < bins)
    return torch.bincount(x.long().where(has_bin, bins), minlength=bins + 1)[:bins].int()


def extreme(rng: torch.Generator, x: torch.Tensor, bins: int) -> None:
    """Set a third of the elements: bytes from 128 on and at both ends, int32 values without a bin among them."""
    special = [0, 127, 128, 255] if x.dtype == torch.uint8 else [-1, bins, -(2**31), 2**31 - 1, bins - 1, bins + 65_536]
    draw.special_(rng, x, special)


def clamped(x: torch.Tensor, bins: int) -> torch.Tensor:
    """Count a value beyond the bins in the nearest one."""
    return reference(x.clamp(0, bins - 1), bins)


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        {"n": 1, "bins": 256, "dtype": "uint8", "distribution": "uniform"},
        {"n": 31, "bins": 7, "dtype": "int32", "distribution": "uniform"},
        {"n": 257, "bins": 256, "dtype": "uint8", "distribution": "zipf"},
        {"n": 10_007, "bins": 256, "dtype": "uint8", "distribution": "equal"},
        {"n": 10_007, "bins": 1000, "dtype": "int32", "distribution": "zipf"},
        {"n": 1021, "bins": 1, "dtype": "int32", "distribution": "equal"},
        {"n": 4099, "bins": 12_289, "dtype": "int32", "distribution": "sorted"},  # a counter more than 48 KiB hold
        {"n": 4096, "bins": 65_536, "dtype": "int32", "distribution": "uniform"},
        {"n": 40_009, "bins": 65_536, "dtype": "int32", "distribution": "equal"},
        {"n": 65_537, "bins": 256, "dtype": "uint8", "distribution": "sorted"},
        {"n": 1_200_007, "bins": 256, "dtype": "uint8", "distribution": "uniform"},
    ),
    vary=("n",),
    reference=reference,
    tolerance={"int32": EXACT},
    extreme=extreme,
    faults={"values beyond the bins in the nearest one": clamped},
    # A counter of 16 bits overflows where a block counts one value 65,536 times.
    limits=({"n": 200_003, "bins": 65_536, "dtype": "int32", "distribution": "equal"},),
    gpu_limits=(
        {"n": (1 << 28) + 5, "bins": 256, "dtype": "uint8", "distribution": "equal"},
        {"n": (1 << 26) + 5, "bins": 65_536, "dtype": "int32", "distribution": "equal"},
    ),
    compulsory_bytes=lambda n, bins, dtype, distribution: BYTES[dtype] * n + 4 * bins,
    flops=lambda n, bins, dtype, distribution: n,
)
