"""Causal attention with a window and sinks: query i sees key j <= i if i - j < window or j < sinks.

q is (batch, heads, tokens, head), k and v are (batch, kv_heads, tokens, head), all contiguous and of one dtype; query
head h reads key head h // (heads // kv_heads). window is at least 1, so that a query sees its own key, and sinks is at
least 0.
"""

from __future__ import annotations

import torch

from kernelpath.course.problem import Case, Problem
from kernelpath.course.problems import attention

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor, int, int]


def inputs(
    rng: torch.Generator,
    batch: int,
    heads: int,
    kv_heads: int,
    tokens: int,
    head: int,
    window: int,
    sinks: int,
    dtype: str = "bfloat16",
) -> Inputs:
    """Generate scores of mean 0 and deviation 1.4, as for attention."""
    q, k, v, _ = attention.inputs(rng, batch, heads, kv_heads, tokens, head, True, dtype)
    return q, k, v, window, sinks


def _sees(query: torch.Tensor, key: torch.Tensor, window: int, sinks: int) -> torch.Tensor:
    """Return whether queries see keys, by their positions."""
    return (key <= query) & ((query - key < window) | (key < sinks))


def is_visible(tokens: int, window: int, sinks: int, device: torch.device | None = None) -> torch.Tensor:
    """Return the mask: whether each query, a row, sees each key, a column."""
    position = torch.arange(tokens, device=device)
    return _sees(position[:, None], position, window, sinks)


def count_visible(tokens: int, window: int, sinks: int) -> int:
    """Return the number of pairs of a query and a key that the mask shows."""
    in_window = [min(query + 1, window) for query in range(tokens)]
    outside = [min(sinks, max(0, query + 1 - window)) for query in range(tokens)]
    return sum(in_window) + sum(outside)


# The queries of a block of the reference, and the scores of blocks that it holds at once: in float64, half a gigabyte.
_QUERIES = 512
_SCORES = 1 << 26


def _attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, window: int, sinks: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return out and the largest score of each query in float64, by blocks of queries and the keys that they may see.

    All scores of a long prompt would take 16 times the work of a window of 1,024 at 16,384 tokens.
    """
    tokens, head = q.shape[2:]
    out = torch.empty(q.shape, dtype=torch.float64, device=q.device)
    largest = torch.empty(q.shape[:-1], dtype=torch.float64, device=q.device)
    group = q.shape[1] // k.shape[1]
    flat_q = q.flatten(0, 1)
    flat_k = k.flatten(0, 1)
    flat_v = v.flatten(0, 1)
    for begin in range(0, tokens, _QUERIES):
        row = torch.arange(begin, min(begin + _QUERIES, tokens), device=q.device)
        # The window of the first query begins here. Sinks before it are keys of the block as well.
        first = max(0, begin - window + 1)
        sink = torch.arange(min(sinks, first), device=q.device)
        key = torch.cat([sink, torch.arange(first, begin + len(row), device=q.device)])
        hidden = ~_sees(row[:, None], key, window, sinks)
        for heads in torch.arange(len(flat_q), device=q.device).split(max(1, _SCORES // hidden.numel())):
            kv_heads = (heads // group)[:, None]
            scores = flat_q[heads, begin : begin + len(row)].double() @ flat_k[kv_heads, key].double().mT * head**-0.5
            scores.masked_fill_(hidden, -torch.inf)
            out.flatten(0, 1)[heads[:, None], row] = torch.softmax(scores, -1) @ flat_v[kv_heads, key].double()
            largest.flatten(0, 1)[heads[:, None], row] = scores.amax(-1)
    return out, largest


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, window: int, sinks: int) -> torch.Tensor:
    """Compute in float64."""
    return _attention(q, k, v, window, sinks)[0]


def eager(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, window: int, sinks: int) -> torch.Tensor:
    """Compute all scores by operators, and hide those outside of the mask, one head after another."""
    tokens, head = q.shape[2:]
    out = torch.empty_like(q)
    visible = is_visible(tokens, window, sinks, q.device)
    group = q.shape[1] // k.shape[1]
    for row in range(q.shape[0] * q.shape[1]):  # one head at a time, because its scores are large
        query, key, value = q.flatten(0, 1)[row], k.flatten(0, 1)[row // group], v.flatten(0, 1)[row // group]
        scores = query @ key.mT * head**-0.5
        scores.masked_fill_(~visible, -torch.inf)
        out.flatten(0, 1)[row] = torch.softmax(scores, -1) @ value
    return out


def extreme(rng: torch.Generator, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, window: int, sinks: int) -> None:
    """Set the key heads as for attention: rising scores, one key that decides where it is visible, scores far below."""
    attention.extreme(rng, q, k, v, True)


def compulsory_bytes(
    batch: int,
    heads: int,
    kv_heads: int,
    tokens: int,
    head: int,
    window: int,
    sinks: int,
    dtype: str = "bfloat16",
) -> int:
    """Count q, k and v read, and out written."""
    return batch * tokens * 2 * head * (2 * heads + 2 * kv_heads)


def flops(
    batch: int,
    heads: int,
    kv_heads: int,
    tokens: int,
    head: int,
    window: int,
    sinks: int,
    dtype: str = "bfloat16",
) -> int:
    """Count two products of the scores that the mask shows."""
    return 4 * batch * heads * head * count_visible(tokens, window, sinks)


def case(tokens: int, head: int, window: int, sinks: int, *, batch: int = 1, heads: int = 1, kv_heads: int = 1) -> Case:
    """Return a case by its numbers, in bfloat16."""
    return {
        "batch": batch,
        "heads": heads,
        "kv_heads": kv_heads,
        "tokens": tokens,
        "head": head,
        "window": window,
        "sinks": sinks,
        "dtype": "bfloat16",
    }


PROBLEM = Problem(
    inputs=inputs,
    # Windows and sinks of less than a tile, of more than one, as large as an int, and at the ends of tiles.
    cases=(
        case(1, 64, 1, 0),
        case(65, 64, 1, 0, heads=6, kv_heads=3),
        case(130, 64, 16, 4, batch=2, heads=2, kv_heads=1),
        case(129, 128, (1 << 31) - 1, 4, heads=2, kv_heads=2),
        case(257, 64, 64, 64, heads=2, kv_heads=1),
        case(300, 64, 33, 130),
        case(70, 64, 8, (1 << 31) - 1),
        case(2000, 64, 250, 4),
    ),
    vary=("tokens",),
    far=(case(128, 128, 48, 4, batch=16_400, heads=16, kv_heads=16),),
    reference=reference,
    tolerance={"bfloat16": attention.PROBLEM.tolerance["bfloat16"]},
    magnitudes=lambda q, k, v, window, sinks: reference(q, k, v.abs(), window, sinks),
    extreme=extreme,
    faults=attention.softmax_faults(_attention),
    must_reach={"tokens": 2000},  # the reference has tokens**2 scores
    gpu_limits=(case(5000, 128, 1024, 4, heads=8, kv_heads=2), case(1, 64, 1, 0, batch=65_537)),
    compulsory_bytes=compulsory_bytes,
    flops=flops,
)
