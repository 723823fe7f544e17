"""Causal attention of sequences of several lengths, packed one after another without padding.

q is (total, heads, head), k and v are (total, kv_heads, head), all contiguous and of one dtype. cu_seqlens, int32,
begins with 0 and has the end of every sequence: sequence i is rows cu_seqlens[i] to cu_seqlens[i + 1] - 1, and may be
empty. A token sees itself and those before it in its sequence. Query head h reads key head h // (heads // kv_heads).
"""

from __future__ import annotations

from functools import partial

import torch

from kernelpath.course import draw
from kernelpath.course.problem import Case, Problem
from kernelpath.course.problems import attention
from kernelpath.course.problems.sequences import parsed, shuffled

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def inputs(
    rng: torch.Generator,
    lengths: str,
    heads: int,
    kv_heads: int,
    head: int,
    dtype: str = "bfloat16",
    others: bool = False,
) -> Inputs:
    """Return values as for attention, in sequences in a random order, with `others` of other lengths."""
    ends = shuffled(rng, lengths, others).cumsum(0)
    cu_seqlens = torch.cat([ends.new_zeros(1), ends]).int()
    total = sum(parsed(lengths))
    q = draw.normal(rng, total, heads, head, dtype=dtype, large=0)
    k = draw.normal(rng, total, kv_heads, head, dtype=dtype, large=0).sub_(1)
    v = draw.normal(rng, total, kv_heads, head, dtype=dtype)
    return q, k, v, cu_seqlens


def _attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens: torch.Tensor, dtype: torch.dtype, max_scores: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return out and each row's largest score, (total, heads), in dtype, with about `max_scores` scores in memory.

    Sequences of the same length are one batch. All heads of some of their queries are computed at a time, with the keys
    up to the last of them.
    """
    out = torch.empty_like(q, dtype=dtype)
    largest = torch.empty(q.shape[:2], dtype=dtype, device=q.device)
    group, (begins, ends) = q.shape[1] // k.shape[1], (cu_seqlens[:-1], cu_seqlens[1:])
    for length in sorted({*(ends - begins).tolist()} - {0}):
        token = torch.arange(length, device=q.device)
        each = q.shape[1] * length
        for some in begins[ends - begins == length].long().split(max(1, max_scores // (each * length))):
            place = some[:, None] + token
            key, value = (x[place].to(dtype).repeat_interleave(group, 2).transpose(1, 2) for x in (k, v))
            for query_tokens in token.split(max(1, max_scores // (each * len(some)))):
                last = int(query_tokens[-1]) + 1
                query = q[place[:, query_tokens]].to(dtype).transpose(1, 2)
                scores = query @ key[:, :, :last].mT * q.shape[2] ** -0.5
                scores.masked_fill_(token[:last] > query_tokens[:, None], -torch.inf)
                out[place[:, query_tokens]] = (torch.softmax(scores, -1) @ value[:, :, :last]).transpose(1, 2)
                if dtype == torch.float64:
                    largest[place[:, query_tokens]] = scores.amax(-1).transpose(1, 2)
    return out, largest


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens: torch.Tensor) -> torch.Tensor:
    """Compute in float64."""
    return _attention(q, k, v, cu_seqlens, torch.float64, 1 << 26)[0]


def eager(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens: torch.Tensor) -> torch.Tensor:
    """Compute the formula by operators, length by length, with 2 GB of scores at a time."""
    return _attention(q, k, v, cu_seqlens, q.dtype, 1 << 30)[0]


def extreme(rng: torch.Generator, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens: torch.Tensor) -> None:
    """Set values as for attention, over all tokens: scores rise by 200 somewhere, one key decides, all near -1000."""
    query, key, value = (x.transpose(0, 1)[None] for x in (q, k, v))
    attention.extreme(rng, query, key, value, causal=True)


def compulsory_bytes(lengths: str, heads: int, kv_heads: int, head: int, dtype: str = "bfloat16") -> int:
    """Count q, k and v read, and out written."""
    return 4 * sum(parsed(lengths)) * head * (heads + kv_heads)


def flops(lengths: str, heads: int, kv_heads: int, head: int, dtype: str = "bfloat16") -> int:
    """Count two GEMMs of the scores that are not masked."""
    return 4 * heads * head * sum(length * (length + 1) // 2 for length in parsed(lengths))


def case(lengths: str, head: int, *, heads: int = 1, kv_heads: int = 1) -> Case:
    """Return a case by its numbers, in bfloat16."""
    return {"lengths": lengths, "heads": heads, "kv_heads": kv_heads, "head": head, "dtype": "bfloat16"}


PROBLEM = Problem(
    inputs=inputs,
    # Tiles hold 32, 64 or 128 queries or keys.
    cases=(
        case("1", 64),
        case("63+64+65+0+1", 64, heads=3, kv_heads=3),
        case("130x1+3x5+2x0+17", 64, heads=4, kv_heads=2),
        case("129+31", 32, heads=2, kv_heads=1),
        case("2x40+200", 64, heads=6, kv_heads=2),
    ),
    # Every tile has a far row of k and v in it.
    far=(case("33x127+16500x256", 64, heads=16, kv_heads=16),),
    reference=reference,
    # As for attention, whose rows have as many keys.
    tolerance={dtype: attention.PROBLEM.tolerance[dtype] for dtype in ("bfloat16", "float16")},
    magnitudes=lambda q, k, v, cu_seqlens: reference(q, k, v.abs(), cu_seqlens),
    extreme=extreme,
    redistributed=partial(inputs, others=True),
    faults=attention.softmax_faults(partial(_attention, dtype=torch.float64, max_scores=1 << 26)),
    gpu_limits=(case("1000x3+65537x1", 64), case("33+1025", 128, heads=4), case("300+129", 256, heads=2)),
    compulsory_bytes=compulsory_bytes,
    flops=flops,
)
