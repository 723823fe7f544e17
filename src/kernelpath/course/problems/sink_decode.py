"""Attention of one new token per sequence over a contiguous cache, with a sink logit for each query head.

q is (batch, heads, head), k and v are (batch, kv_heads, tokens, head), all contiguous and of one dtype; query head h
reads key head h // (heads // kv_heads). sink, float32 of shape (heads,), is one further score of each head, whose value
is 0: out = sum(exp(score) * v) / (exp(sink) + sum(exp(score))), with score = q @ k / sqrt(head). OpenAI's gpt-oss has
such a logit, as a parameter of its layers.
"""

from __future__ import annotations

from functools import partial

import torch

from kernelpath.course import draw
from kernelpath.course.problem import Case, Problem
from kernelpath.course.problems import attention

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def inputs(
    rng: torch.Generator, batch: int, heads: int, kv_heads: int, tokens: int, head: int, dtype: str = "bfloat16"
) -> Inputs:
    """Generate scores of mean 0 and deviation 1.4, and sinks that weigh about as much as all tokens together."""
    q = draw.normal(rng, batch, heads, head, dtype=dtype, large=0)
    k = draw.normal(rng, batch, kv_heads, tokens, head, dtype=dtype, large=0).sub_(1)
    v = draw.normal(rng, batch, kv_heads, tokens, head, dtype=dtype)
    # The mean of exp(score) is exp(1.4 ** 2 / 2), whose logarithm is 1.
    typical = torch.tensor(float(tokens)).log().item() + 1
    sink = draw.normal(rng, heads, large=0, mean=typical)
    return q, k, v, sink


# The elements of keys that are converted at once: as float64, 2 GB.
_ELEMENTS = 1 << 28


def _attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sink: torch.Tensor, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return out and the largest score of each query head, its sink included, by the formula in dtype."""
    out = torch.empty(q.shape, dtype=dtype, device=q.device)
    largest = torch.empty(q.shape[:2], dtype=dtype, device=q.device)
    kv_heads, tokens, head = k.shape[1:]
    batch = len(q)
    # A few sequences at a time, because a cache in float64 is large, and short sequences may be many.
    step = max(1, _ELEMENTS // (kv_heads * tokens * head))
    for start in range(0, batch, step):
        some = slice(start, start + step)
        query = q[some].to(dtype).unflatten(1, (kv_heads, -1))
        scores = (query @ k[some].to(dtype).mT * head**-0.5).flatten(1, 2)
        sinks = sink.to(dtype)[None, :, None].expand(len(scores), -1, 1)
        scores = torch.cat([scores, sinks], dim=2)
        # The last weight is the sink's, whose value is 0.
        weights = torch.softmax(scores, dim=2)[..., :-1].unflatten(1, (kv_heads, -1))
        out[some] = (weights @ v[some].to(dtype)).flatten(1, 2)
        largest[some] = scores.amax(2)
    return out, largest


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sink: torch.Tensor) -> torch.Tensor:
    """Compute in float64."""
    return _attention(q, k, v, sink, torch.float64)[0]


def eager(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sink: torch.Tensor) -> torch.Tensor:
    """Compute by operators: multiply, append the sink, softmax, multiply."""
    return _attention(q, k, v, sink, q.dtype)[0]


def extreme(rng: torch.Generator, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sink: torch.Tensor) -> None:
    """Set the key heads, in turn: scores that rise from -100 to 100 halfway, one key that decides, scores far below 0.

    The sinks are, in turn, far below all scores, 0, 150, whose exponential overflows float32, and far above all scores.
    """
    attention.extreme(rng, q, k, v, False)
    numbers = torch.arange(len(sink), device=sink.device) + k.shape[2]
    sink.copy_(torch.tensor([-1000.0, 0.0, 150.0, 1000.0], device=sink.device)[numbers % 4])


def unordered(rng: torch.Generator, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sink: torch.Tensor) -> None:
    """Give all tokens the same weight, and six of them huge values whose sum depends on the order of the additions."""
    k.zero_()
    tokens = torch.randperm(k.shape[2], generator=rng, device=rng.device)[:6]
    signs = torch.tensor([1.0, -1.0], device=rng.device).repeat(3)[: len(tokens)]
    v[:, :, tokens] = (2.0**40 * signs[:, None]).to(v.dtype)


def sink_without_maximum(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sink: torch.Tensor) -> torch.Tensor:
    """Leave the sink out of the maximum: its exponential overflows where it is far above all scores."""
    _, largest = _attention(q, k, v, torch.full_like(sink, -torch.inf), torch.float64)
    return reference(q, k, v, sink).masked_fill((sink - largest > attention.EXP_OVERFLOWS)[..., None], torch.nan)


def compulsory_bytes(batch: int, heads: int, kv_heads: int, tokens: int, head: int, dtype: str = "bfloat16") -> int:
    """Count keys and values, q, out, and the sinks."""
    return batch * (4 * kv_heads * tokens * head + 4 * heads * head) + 4 * heads


def flops(batch: int, heads: int, kv_heads: int, tokens: int, head: int, dtype: str = "bfloat16") -> int:
    """Count two dot products of each query head with every token."""
    return 4 * batch * heads * head * tokens


def case(tokens: int, head: int, *, batch: int = 1, heads: int = 1, kv_heads: int = 1) -> Case:
    """Return a case by its numbers, in bfloat16."""
    sizes = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "tokens": tokens, "head": head}
    return {**sizes, "dtype": "bfloat16"}


PROBLEM = Problem(
    inputs=inputs,
    # 8,500 tokens are a little more than 132 tiles of 64, so that splits of whole tiles leave a part without tokens.
    cases=(
        case(1, 64, heads=2),
        case(17, 64, batch=3, heads=6, kv_heads=3),
        case(65, 128, batch=2, heads=8, kv_heads=2),
        case(1000, 64, batch=2, heads=3, kv_heads=1),
        case(8500, 64, heads=8),
    ),
    vary=("tokens",),
    far=(case(257, 64, batch=16_400, heads=16, kv_heads=16),),
    reference=reference,
    # As for attention: out is rounded, and each weight for the tensor cores. A log-sum-exp in float32 is off by 2^-24
    # of its magnitude, which is at most 1000: 6e-5 of each part.
    tolerance={"bfloat16": attention.PROBLEM.tolerance["bfloat16"]},
    magnitudes=lambda q, k, v, sink: reference(q, k, v.abs(), sink),
    extreme=extreme,
    unordered=unordered,
    faults={
        **attention.softmax_faults(partial(_attention, dtype=torch.float64)),
        "a sink that is left out of the maximum": sink_without_maximum,
    },
    limits=(case(34, 64, heads=20),),  # more query heads for a key head than an mma has rows
    must_reach={"tokens": 8192, "heads": 20},  # the largest case; work grows with heads as well
    gpu_limits=(case(20_000, 128, heads=32, kv_heads=8), case(1, 64, batch=65_537)),
    compulsory_bytes=compulsory_bytes,
    flops=flops,
)
