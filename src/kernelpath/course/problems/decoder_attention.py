"""The attention half of a decoder layer for one token: norm, projections, attention over a cache, output projection.

A table of tasks, which is an input, divides the work; `tasks` describes its rows.
"""

from __future__ import annotations

import torch

from kernelpath.course import draw
from kernelpath.course.problem import Problem, Tolerance
from kernelpath.course.problems.add_rmsnorm import EPS

# The columns of a head.
HEAD = 64

# The rows of a matrix that one task multiplies.
ROWS = 16

NORM, PROJECT, ATTEND, OUTPUT = range(4)

Inputs = tuple[torch.Tensor, ...]


def tasks(heads: int) -> list[tuple[int, int, int, int, int]]:
    """Return the table of tasks: operation, index, counter to wait for (-1: none), its value, counter to add 1 to.

    NORM computes h. PROJECT computes rows 16 index to 16 index + 15 of wqkv @ h. ATTEND computes a head, OUTPUT rows 16
    index to 16 index + 15 of the result. Counter 0 is for h, 1 + i for query, key and value of head i, and 1 + heads
    for all heads. A task waits for tasks of earlier rows only.
    """
    columns = heads * HEAD
    per_part = columns // ROWS  # of the query, the key, or the value
    per_head = HEAD // ROWS
    # In topological order: no task waits for a later one, so even a single block gets through the table.
    table = [(NORM, 0, -1, 0, 0)]
    for head in range(heads):
        for part in range(3):
            first = part * per_part + head * per_head
            table += [(PROJECT, index, 0, 1, 1 + head) for index in range(first, first + per_head)]
    table += [(ATTEND, head, 1 + head, 3 * per_head, 1 + heads) for head in range(heads)]
    table += [(OUTPUT, index, 1 + heads, heads, -1) for index in range(per_part)]
    return table


def shuffle_tasks(rng: torch.Generator, table: list[tuple[int, int, int, int, int]]) -> torch.Tensor:
    """Return a table of the same tasks, those of each operation in another order, with other numbers of the counters.

    The operations stay in their order, in which few blocks wait.
    """
    # A kernel must read the table: neither the order of the tasks nor the counters can be known in advance.
    keys = torch.rand(len(table), generator=rng, device=rng.device).tolist()
    order = sorted(range(len(table)), key=lambda row: (table[row][0], keys[row]))
    counter_count = 1 + max(wait_counter for _, _, wait_counter, _, _ in table)
    # A permutation of the counters' numbers.
    counters = torch.randperm(counter_count, generator=rng, device=rng.device)
    shuffled = torch.tensor(table, dtype=torch.int32, device=rng.device)[order]
    for column in (2, 4):
        # Columns 2 and 4 have counters; -1 stands for none.
        has_counter = shuffled[:, column] >= 0
        shuffled[has_counter, column] = counters[shuffled[has_counter, column].long()].int()
    return shuffled


def inputs(rng: torch.Generator, heads: int, tokens: int) -> Inputs:
    """Return x, weight, wqkv, k_cache, v_cache, wo, and the table of tasks."""
    columns = heads * HEAD
    k_cache = draw.normal(rng, tokens, heads, HEAD, dtype="bfloat16", large=0, mean=0.0)
    v_cache = draw.normal(rng, tokens, heads, HEAD, dtype="bfloat16", large=0)
    v_cache[-1] *= 1000  # a kernel that leaves out the last token is wrong by much, however many there are
    return (
        draw.normal(rng, columns, large=0),
        draw.normal(rng, columns, large=0),
        draw.normal(rng, 3 * columns, columns, dtype="bfloat16", large=0, mean=0.0).mul_(columns**-0.5),
        k_cache,
        v_cache,
        draw.normal(rng, columns, columns, dtype="bfloat16", large=0, mean=0.0).mul_(columns**-0.5),
        shuffle_tasks(rng, tasks(heads)),
    )


def extreme(
    rng: torch.Generator,
    x: torch.Tensor,
    weight: torch.Tensor,
    wqkv: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    wo: torch.Tensor,
    table: torch.Tensor,
) -> None:
    """Set keys whose exponentials overflow without a maximum, and an x that eps decides.

    In the last head, all scores are far below 0: its keys are negative multiples of its query, with 2% of noise.
    """
    k_cache *= 64
    x *= 1e-3
    h = _normalize(x, weight)
    query, key, _ = wqkv.view(3, -1, HEAD, x.numel())[:, -1]
    factor = _LOW_SCORE * HEAD**0.5 / float((query.double() @ h).square().sum())
    key.copy_(factor * query)
    noise = 1 + 0.02 * torch.randn(k_cache[:, -1].shape, generator=rng, device=rng.device)
    k_cache[:, -1] = factor * (query.double() @ h) * noise


# The scores of the last head, nearly.
_LOW_SCORE = -300.0


def unordered(rng: torch.Generator, *inputs: torch.Tensor) -> None:
    """Change nothing: sums of hundreds of float32 products in another order differ in their last bits."""


def _normalize(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return the RMS norm in float64."""
    return x.double() * (x.double().square().mean() + EPS).rsqrt() * weight.double()


def attend(
    x: torch.Tensor,
    weight: torch.Tensor,
    wqkv: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    least_maximum: float | None = -torch.inf,
) -> torch.Tensor:
    """Return the output of all heads in float64.

    Args:
        least_maximum: The value at which the maximum begins; None if no maximum is subtracted.
    """
    heads = k_cache.shape[1]
    h = _normalize(x, weight)
    q, k, v = (wqkv.double() @ h).view(3, heads, 1, HEAD)
    keys = torch.cat([k_cache.double().transpose(0, 1), k], dim=1)
    values = torch.cat([v_cache.double().transpose(0, 1), v], dim=1)
    scores = q @ keys.mT * HEAD**-0.5
    # torch subtracts the maximum of a row, as a right kernel does.
    weights = scores.softmax(dim=-1)
    if least_maximum != -torch.inf:
        maximum = 0.0 if least_maximum is None else scores.amax(dim=-1, keepdim=True).clamp(min=least_maximum)
        weights = (exponentials := (scores - maximum).float().exp()) / exponentials.sum(dim=-1, keepdim=True)
    attended: torch.Tensor = (weights.double() @ values).flatten()
    return attended


def reference(
    x: torch.Tensor,
    weight: torch.Tensor,
    wqkv: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    wo: torch.Tensor,
    table: torch.Tensor,
) -> torch.Tensor:
    return x.double() + wo.double() @ attend(x, weight, wqkv, k_cache, v_cache)


def without_maximum(
    x: torch.Tensor,
    weight: torch.Tensor,
    wqkv: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    wo: torch.Tensor,
    table: torch.Tensor,
) -> torch.Tensor:
    return x.double() + wo.double() @ attend(x, weight, wqkv, k_cache, v_cache, least_maximum=None)


def maximum_from_zero(
    x: torch.Tensor,
    weight: torch.Tensor,
    wqkv: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    wo: torch.Tensor,
    table: torch.Tensor,
) -> torch.Tensor:
    return x.double() + wo.double() @ attend(x, weight, wqkv, k_cache, v_cache, least_maximum=0.0)


def library(
    x: torch.Tensor,
    weight: torch.Tensor,
    wqkv: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    wo: torch.Tensor,
    table: torch.Tensor,
) -> torch.Tensor:
    """Compute by torch's operators, one kernel or more for each step."""
    heads = k_cache.shape[1]
    h = torch.nn.functional.rms_norm(x, x.shape, weight, EPS)
    q, k, v = (wqkv @ h.to(wqkv.dtype)).view(3, heads, 1, HEAD)
    keys = torch.cat([k_cache.transpose(0, 1), k], dim=1)
    values = torch.cat([v_cache.transpose(0, 1), v], dim=1)
    attended = torch.nn.functional.scaled_dot_product_attention(q[None], keys[None], values[None])
    return x + (wo @ attended.flatten()).float()


def compulsory_bytes(heads: int, tokens: int) -> int:
    columns = heads * HEAD
    return 2 * 4 * columns * columns + 2 * 2 * tokens * columns + 3 * 4 * columns + 20 * len(tasks(heads))


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        {"heads": 4, "tokens": 1},
        {"heads": 4, "tokens": 31},
        {"heads": 4, "tokens": 257},
        {"heads": 4, "tokens": 1000},
    ),
    vary=("tokens",),
    reference=reference,
    # Sums in float32 of products of bfloat16 and float32 values; exponentials of scores of up to some hundreds.
    tolerance={"float32": Tolerance(rtol=1e-4, atol=2e-4)},
    extreme=extreme,
    unordered=unordered,
    faults={
        "exponentials without the maximum": without_maximum,
        "a maximum that begins at 0": maximum_from_zero,
    },
    limits=({"heads": 1, "tokens": 65_537}, {"heads": 9, "tokens": 1}, {"heads": 3, "tokens": 33}),
    must_reach={"heads": 8},
    compulsory_bytes=compulsory_bytes,
    flops=lambda heads, tokens: 8 * (heads * HEAD) ** 2 + 4 * heads * HEAD * (tokens + 1),
)
