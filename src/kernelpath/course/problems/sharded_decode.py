"""Decode over a KV cache that is sharded over ranks: each rank's partial attention, combined on every rank.

A rank attends to the keys of its own shard alone, and has for each head a partial output and the logarithm of the sum
of its exponentials. The output is the mean of the partial outputs, weighted by these sums.
"""

from __future__ import annotations

import torch

from kernelpath.course.problem import Case, Problem, Tolerance


def inputs(rng: torch.Generator, world: int, steps: int, heads: int, head: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return partial outputs (world, steps, heads, head) and their log-sum-exp (world, steps, heads), float32."""
    partial = torch.randn(world, steps, heads, head, generator=rng, device=rng.device)
    return partial, 2 * torch.randn(world, steps, heads, generator=rng, device=rng.device)


def reference(partial: torch.Tensor, lse: torch.Tensor) -> torch.Tensor:
    """Return the combined output of every rank, (steps, heads, head), one after another."""
    weights = lse.double().softmax(0)[..., None]
    return (weights * partial.double()).sum(0).flatten().repeat(len(lse))


def extreme(rng: torch.Generator, partial: torch.Tensor, lse: torch.Tensor) -> None:
    """Set sums whose exponentials overflow or underflow in float32, and shards without a key.

    With a short context, all shards but the last rank's may be empty.
    """
    lse[:, :, ::2] += 300
    lse[:, :, 1::2] -= 300
    # The number of empty shards, for each step and head: none half of the time.
    count = torch.randint(1 - len(lse), len(lse), lse.shape[1:], generator=rng, device=rng.device)
    empty = torch.arange(len(lse), device=rng.device)[:, None, None] < count
    lse[empty] = -torch.inf
    partial[empty] = 0


def unweighted(partial: torch.Tensor, lse: torch.Tensor) -> torch.Tensor:
    """Give every shard the same weight."""
    return partial.double().mean(0).flatten().repeat(len(lse))


def without_maximum(partial: torch.Tensor, lse: torch.Tensor) -> torch.Tensor:
    """Exponentiate in float32 without subtracting the maximum."""
    weights = lse.exp()[..., None]
    return ((weights * partial).sum(0) / weights.sum(0)).double().flatten().repeat(len(lse))


def with_running_maximum(partial: torch.Tensor, lse: torch.Tensor) -> torch.Tensor:
    """Add shard by shard with a running maximum: between two empty shards, it computes -inf - -inf."""
    is_undefined = lse.isneginf()[:2].all(0) if len(lse) > 1 else torch.zeros_like(lse[0], dtype=torch.bool)
    affected = is_undefined[..., None].expand(partial.shape[1:]).flatten().repeat(len(lse))
    return reference(partial, lse).masked_fill(affected, torch.nan)


def case(world: int, steps: int, heads: int, head: int = 64) -> Case:
    return {"world": world, "steps": steps, "heads": heads, "head": head}


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        case(2, 1, 8),  # one step: nothing is used again
        case(1, 2, 3),  # a single rank has no peer
        case(2, 5, 1),
        case(3, 4, 12),  # the last block has a part of its heads
        case(4, 8, 40),
    ),
    reference=reference,
    extreme=extreme,
    faults={
        "the same weight for every shard": unweighted,
        "no maximum": without_maximum,
        "a running maximum of empty shards": with_running_maximum,
    },
    # A weight exp(x), x <= 0, is off by 2^-23 + |x| 2^-23: the rounding of x, and of x log2(e). |x| exp(x) is below
    # 0.4, so four terms, their sum, the sum of the weights and a division are off by less than 16 units of 2^-24.
    tolerance={"float32": Tolerance(rtol=0.0, atol=0.0, mtol=16 * 2**-24)},
    magnitudes=lambda partial, lse: reference(partial.abs(), lse),
    compulsory_bytes=lambda world, steps, heads, head: 4 * world * steps * heads * (2 * head + 1),
)
