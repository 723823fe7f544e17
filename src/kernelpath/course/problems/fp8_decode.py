"""Attention of one new token over a KV cache in float8 e4m3, with scales of channels for keys and of tokens for values.

q is (batch, heads, head) in bfloat16; k and v are (batch, heads, tokens, head) in float8_e4m3fn. k_scale, float32,
(batch, heads, head), has an element for each channel of a head's keys, and v_scale, float32, (batch, heads, tokens),
one for each token of its values. KIVI (arXiv 2402.02750) chose these axes: a few channels of keys are large for every
token, and values have no such channels. The reference takes the stored values as they are.
"""

from __future__ import annotations

from functools import partial

import torch

from kernelpath.course import draw
from kernelpath.course.problem import Case, Problem
from kernelpath.course.problems import attention

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


# Normal values, divided by this number, are subnormal in e4m3, whose least normal number is 2^-6. Its spacing is 2^-9.
_TO_SUBNORMAL = 256


def inputs(rng: torch.Generator, batch: int, heads: int, tokens: int, head: int) -> Inputs:
    """Generate scores of mean 0 and deviation 1.2: no token decides, and out is no average of all tokens."""
    q = draw.normal(rng, batch, heads, head, dtype="bfloat16", large=0)
    k = draw.normal(rng, batch, heads, tokens, head, dtype="float8_e4m3fn", large=0, mean=0.0)
    v = draw.normal(rng, batch, heads, tokens, head, dtype="float8_e4m3fn", large=0)
    return q, k, v, 32 * draw.scales(rng, batch, heads, head), 16 * draw.scales(rng, batch, heads, tokens)


def _attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    k_scale: torch.Tensor,
    v_scale: torch.Tensor,
    dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return out and each head's largest score, (batch, heads), by the formula over a cache that is dequantized."""
    keys = k.to(dtype) * k_scale[:, :, None].to(dtype)
    values = v.to(dtype) * v_scale[..., None].to(dtype)
    scores = (keys @ q[..., None].to(dtype))[..., 0] * q.shape[-1] ** -0.5
    return (torch.softmax(scores, -1)[:, :, None] @ values)[:, :, 0], scores.amax(-1)


def reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, k_scale: torch.Tensor, v_scale: torch.Tensor
) -> torch.Tensor:
    return _attention(q, k, v, k_scale, v_scale, torch.float64)[0]


def dequantize_then_attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, k_scale: torch.Tensor, v_scale: torch.Tensor
) -> torch.Tensor:
    """Compute by operators: the cache in bfloat16, then the formula."""
    return _attention(q, k, v, k_scale, v_scale, q.dtype)[0]


def extreme(
    rng: torch.Generator,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    k_scale: torch.Tensor,
    v_scale: torch.Tensor,
) -> None:
    """Set the heads, in turn: scores that rise from -100 to 100 halfway, one token that decides, scores far below 0.

    The first channel of q holds 8 and has a scale of 8, so that the first channel of k decides what is added to the
    score of a token, up to the 4 bits of e4m3. Every fourth head has scores of deviation 5, whose few large weights
    show the error of a query with 4 bits. Its keys and values are subnormal, with scales that are as much greater.
    """
    batch, heads, tokens, head = k.shape
    added = torch.zeros(4, tokens, device=k.device)
    added[0, : tokens // 2] = -100
    added[0, tokens // 2 :] = 100
    added[1, tokens // 3] = 400
    added[2] = -1000
    kinds = (torch.arange(batch * heads, device=k.device) + tokens) % 4
    q.flatten(0, 1)[kinds == 3] *= 4
    for cache, scale in ((k, k_scale), (v, v_scale)):
        subnormal = cache.flatten(0, 1)[kinds == 3].float() / _TO_SUBNORMAL
        cache.flatten(0, 1)[kinds == 3] = subnormal.to(cache.dtype)
        scale.flatten(0, 1)[kinds == 3] *= _TO_SUBNORMAL
    q[..., 0] = 8
    k_scale[..., 0] = 8
    k.flatten(0, 1)[:, :, 0] = (added[kinds] * head**0.5 / 64).to(k.dtype)


def without_subnormals(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, k_scale: torch.Tensor, v_scale: torch.Tensor
) -> torch.Tensor:
    """Flush the subnormal values of the cache to 0."""
    keys, values = (torch.where(cache.float().abs() < 2.0**-6, 0.0, cache.float()) for cache in (k, v))
    return _attention(q, keys, values, k_scale, v_scale, torch.float64)[0]


def query_in_float8(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, k_scale: torch.Tensor, v_scale: torch.Tensor
) -> torch.Tensor:
    """Round the query with its scales to the format of the keys."""
    scaled = (q.float() * k_scale).to(k.dtype).float()
    return _attention(scaled, k, v, torch.ones_like(k_scale), v_scale, torch.float64)[0]


def compulsory_bytes(batch: int, heads: int, tokens: int, head: int) -> int:
    """Count keys and values, their scales, q and out."""
    return batch * heads * (2 * tokens * head + 4 * head + 4 * tokens + 4 * head)


def case(batch: int, heads: int, tokens: int, head: int) -> Case:
    return {"batch": batch, "heads": heads, "tokens": tokens, "head": head}


PROBLEM = Problem(
    inputs=inputs,
    # Tiles hold 32, 64 or 128 tokens.
    cases=(
        case(1, 1, 1, 64),
        case(2, 3, 63, 64),
        case(1, 3, 65, 32),
        case(3, 2, 130, 128),
        case(1, 4, 1000, 128),
    ),
    vary=("tokens",),
    limits=(case(1, 1, 4_099, 32), case(1, 3, 34, 256)),
    must_reach={"tokens": 4_096},  # a program that takes all tokens of a head is slow on the PTX machine
    gpu_limits=(case(65_537, 1, 1, 64), case(1, 2, 65_600, 128)),
    far=(case(2_050, 64, 256, 128),),
    reference=reference,
    # As for attention: out is rounded, and each weight for the tensor cores.
    tolerance={"bfloat16": attention.PROBLEM.tolerance["bfloat16"]},
    magnitudes=lambda q, k, v, k_scale, v_scale: _attention(q, k, v.double().abs(), k_scale, v_scale, torch.float64)[0],
    extreme=extreme,
    faults={
        **attention.softmax_faults(partial(_attention, dtype=torch.float64)),
        "a query in float8": query_in_float8,
        "subnormal values flushed": without_subnormals,
    },
    compulsory_bytes=compulsory_bytes,
    flops=lambda batch, heads, tokens, head: 4 * batch * heads * tokens * head,
)
