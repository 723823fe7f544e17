"""Matrix product: out = a @ b for contiguous matrices a (m x k) and b (k x n) of any size, in strict float32."""

from __future__ import annotations

import torch

from kernelpath.course import draw
from kernelpath.course.problem import Problem, Tolerance

# Extents beyond every tile and every panel of shared memory.
#
# Blocks compute whole tiles even for a single row or column, so that a thin case of 65,537 takes seconds on the PTX
# machine. A product of a single element would be unfair: where its terms cancel, the root mean square leaves no room
# for their rounding errors.
BEYOND_A_TILE = {"m": 1_024, "n": 1_024, "k": 2_048}


def inputs(rng: torch.Generator, m: int, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Generate b with mean 0: sums stay small beside their terms, and an error cannot hide in a large sum."""
    return draw.normal(rng, m, k), draw.normal(rng, k, n).sub_(1)


def reference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.double() @ b.double()


def extreme(rng: torch.Generator, a: torch.Tensor, b: torch.Tensor) -> None:
    """Set the last elements of a and b to infinity, which reaches one row and one column of the product only."""
    a[-1, -1] = float("inf")
    b[-1, -1] = -float("inf")


def padded_with_products(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Multiply the padding of a tile by 0 instead of leaving it out."""
    return a.double() @ b.double() + 0 * a.double().sum()


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        {"m": 1, "n": 1, "k": 1},
        {"m": 7, "n": 31, "k": 33},
        {"m": 8, "n": 32, "k": 32},
        {"m": 9, "n": 33, "k": 31},
        {"m": 1, "n": 127, "k": 61},
        {"m": 61, "n": 1, "k": 127},
        {"m": 96, "n": 128, "k": 64},
    ),
    vary=("m", "n", "k"),
    far=(
        {"m": (1 << 16) + 3, "n": 1 << 16, "k": 4},
        {"m": 524_256, "n": 4, "k": 8_196},  # 65,532 blocks of 8 rows, as many as may be below one another
        # The wider b is, the fewer steps it takes to get past 2**31. A compiler may take four at a time by pointers of
        # 64 bits, and compute an offset for the last three alone.
        {"m": 4, "n": 1_572_816, "k": 2_731},
    ),
    reference=reference,
    # A float32 sum of 4096 terms misses by 1.3e-6 of the root mean square at most; in TF32 54 to 96% of the elements
    # are off by more than this, for k from 32 to 4096.
    tolerance={"float32": Tolerance(rtol=1e-5, atol=1e-5)},
    extreme=extreme,
    faults={"the rest of a tile times 0": padded_with_products},
    limits=({"m": 2_053, "n": 1, "k": 1}, {"m": 1, "n": 2_053, "k": 1}, {"m": 8, "n": 8, "k": 4_099}),
    must_reach=BEYOND_A_TILE,
    gpu_limits=({"m": 65_537, "n": 1, "k": 1},),  # 2,049 blocks of 1,024 threads that go through whole tiles
    compulsory_bytes=lambda m, n, k: 4 * (m * k + k * n + m * n),
    flops=lambda m, n, k: 2 * m * n * k,
    product_dtype="float32",
)
