"""Combine the results of experts: out[t] = sum over j of weights[t, j] * y[rows[t, j]], in float32, rounded once.

y is (count, n), rows int32 and weights float32 are (tokens, top_k). A row of -1 is a choice that was dropped because
its expert was full: it adds nothing, whatever its weight.
"""

from __future__ import annotations

import torch

from kernelpath.course import draw
from kernelpath.course.problem import Case, Problem, Tolerance

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def kept_rows(tokens: int, top_k: int, dropped: float) -> int:
    """Return the number of choices that are not dropped; at least one is kept."""
    return max(1, round(tokens * top_k * (1 - dropped)))


def inputs(rng: torch.Generator, tokens: int, n: int, top_k: int, dropped: float, dtype: str = "bfloat16") -> Inputs:
    """Generate rows in a random order, each used once, and weights of which those of a token sum to 1.

    Args:
        dropped: The share of the choices that are dropped.
    """
    choices, row_count = tokens * top_k, kept_rows(tokens, top_k, dropped)
    rows = torch.arange(choices, dtype=torch.int32, device=rng.device)
    rows = torch.where(rows < row_count, rows, -1)[torch.randperm(choices, generator=rng, device=rng.device)]
    weights = torch.randn(tokens, top_k, generator=rng, device=rng.device).softmax(1)
    return draw.normal(rng, row_count, n, dtype=dtype, large=0), rows.view(tokens, top_k), weights


def _terms(y: torch.Tensor, rows: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return the terms of the sums, (tokens, top_k, n), in float64."""
    gathered = y.double()[rows.long().clamp(min=0)]
    return torch.where(rows[..., None] < 0, 0.0, gathered * weights.double()[..., None])


def reference(y: torch.Tensor, rows: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return _terms(y, rows, weights).sum(1)


def eager(y: torch.Tensor, rows: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Compute by operators: gather all rows, weigh them, and sum them in float32."""
    gathered = y[rows.long().clamp(min=0)].float() * weights.masked_fill(rows < 0, 0.0)[..., None]
    return gathered.sum(1).to(y.dtype)


def extreme(rng: torch.Generator, y: torch.Tensor, rows: torch.Tensor, weights: torch.Tensor) -> None:
    """Set infinities in some columns, terms that cancel in others, weights of 0, and NaN for dropped choices.

    A weight of 0 times an infinity is NaN, but a dropped choice adds nothing.
    """
    weights[1::5, 0] = 0
    weights.masked_fill_(rows < 0, torch.nan)
    y[:, ::7] = float("inf")
    if rows.shape[1] % 2 == 0:
        # Pairs of terms cancel, except for the rows of the last token.
        weights[:, 1::2] = weights[:, ::2]
        pairs = rows[:-1].reshape(-1, 2)
        pairs = pairs[(pairs >= 0).all(1)].long()
        columns = torch.arange(1, y.shape[1], 7, device=y.device)
        y[pairs[:, 1:], columns] = -y[pairs[:, :1], columns]
        weights.masked_fill_(rows < 0, torch.nan)


def unordered(rng: torch.Generator, y: torch.Tensor, rows: torch.Tensor, weights: torch.Tensor) -> None:
    """Let magnitudes differ by up to 2^24 from row to row, with either sign."""
    power = torch.randint(-12, 13, (len(y), 1), generator=rng, device=y.device).float()
    y.copy_(torch.randn(y.shape, generator=rng, device=y.device) * 2.0**power)


def dropped_rows_times_zero(y: torch.Tensor, rows: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Read any row for a dropped choice and multiply it by 0."""
    gathered = y.double()[rows.long().clamp(min=0)]
    return (gathered * torch.where(rows < 0, 0.0, weights.double())[..., None]).sum(1)


def weight_of_dropped(y: torch.Tensor, rows: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Multiply a row of zeros by the weight of a dropped choice."""
    gathered = torch.where(rows[..., None] < 0, 0.0, y.double()[rows.long().clamp(min=0)])
    return (gathered * weights.double()[..., None]).sum(1)


def zero_weights_skipped(y: torch.Tensor, rows: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Leave out choices with a weight of 0."""
    return reference(y, rows.masked_fill(weights == 0, -1), weights)


def compulsory_bytes(tokens: int, n: int, top_k: int, dropped: float, dtype: str = "bfloat16") -> int:
    return 2 * n * (kept_rows(tokens, top_k, dropped) + tokens) + 8 * tokens * top_k


def case(tokens: int, n: int, top_k: int, dropped: float = 0.0) -> Case:
    """Return a case by its numbers, in bfloat16."""
    return {"tokens": tokens, "n": n, "top_k": top_k, "dropped": dropped, "dtype": "bfloat16"}


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        case(1, 1, 1),
        case(5, 33, 2, 0.2),
        case(31, 130, 3, 0.5),
        case(64, 256, 8),
        case(3, 2049, 4, 0.9),
        case(257, 72, 1, 0.3),
        case(200, 1024, 6, 0.1),
    ),
    vary=("tokens", "n"),
    far=(case((1 << 20) + 3, 1 << 12, 1),),
    reference=reference,
    # A term is rounded to 2^-24 of itself, and a sum of a dozen to 2^-21 of the largest; then half a unit in the last
    # place, 2^-8 of a bfloat16 and 2^-11 of a float16. Sums in bfloat16 are off by 2^-8 of the terms.
    tolerance={
        "bfloat16": Tolerance(rtol=1.01 * 2**-8, atol=0.0, mtol=2**-20),
        "float16": Tolerance(rtol=1.01 * 2**-11, atol=0.0, mtol=2**-20),
    },
    magnitudes=lambda y, rows, weights: reference(y.abs(), rows, weights.abs()),
    extreme=extreme,
    unordered=unordered,
    faults={
        "dropped rows times 0": dropped_rows_times_zero,
        "the weight of a dropped choice": weight_of_dropped,
        "choices of weight 0 skipped": zero_weights_skipped,
    },
    limits=(case(65_537, 1, 1), case(2, 65_537, 2), case(9, 40, 16, 0.2)),
    compulsory_bytes=compulsory_bytes,
    flops=lambda tokens, n, top_k, dropped, dtype="bfloat16": 2 * tokens * n * top_k,
)
