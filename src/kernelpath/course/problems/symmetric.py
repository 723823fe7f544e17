"""All-reduce over memory that every rank can address: x and the output hold the vectors of all ranks, one by one."""

from __future__ import annotations

import torch

from kernelpath.course.problem import BYTES, Case, Problem, Tolerance

LARGE = 256.0


def inputs(rng: torch.Generator, world: int, n: int, dtype: str) -> tuple[torch.Tensor, int]:
    """Return `world` vectors of n elements, one after another, and world."""
    return torch.randn(world * n, generator=rng, device=rng.device).to(getattr(torch, dtype)), world


def reference(x: torch.Tensor, world: int) -> torch.Tensor:
    """Return the sum for every rank."""
    return x.double().view(world, -1).sum(0).repeat(world)


def extreme(rng: torch.Generator, x: torch.Tensor, world: int) -> None:
    """Set large values that cancel. All sums are multiples of 1/8 that float32 holds exactly, in any order."""
    x.mul_(8).round_().div_(8)
    rows = x.view(world, -1)
    if world > 2:
        rows[0] = LARGE
        rows[2] = -LARGE


def rounded_at_each_step(x: torch.Tensor, world: int) -> torch.Tensor:
    """Keep the sums in bfloat16."""
    rows = x.bfloat16().view(world, -1)
    total = rows[0]
    for row in rows[1:]:
        total = total + row
    return total.double().repeat(world)


def case(world: int, n: int, dtype: str) -> Case:
    return {"world": world, "n": n, "dtype": dtype}


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        case(2, 8, "float32"),
        case(3, 1000, "bfloat16"),  # the last chunk is shorter
        case(4, 24, "bfloat16"),  # a chunk is empty
        case(4, 4096, "bfloat16"),
    ),
    limits=(case(2, 33_000, "bfloat16"),),
    reference=reference,
    extreme=extreme,
    faults={"sums in bfloat16": rounded_at_each_step},
    # Summed in float32, in any order: each of up to four vectors takes part in three additions, each of which rounds by
    # 2^-24 of a partial sum. The result is rounded once to its dtype.
    tolerance={
        "float32": Tolerance(rtol=0.0, atol=0.0, mtol=4 * 2**-24),
        "bfloat16": Tolerance(rtol=2**-8, atol=0.0, mtol=4 * 2**-24),
    },
    magnitudes=lambda x, world: reference(x.abs(), world),
    compulsory_bytes=lambda world, n, dtype: 2 * world * n * BYTES[dtype],
)
