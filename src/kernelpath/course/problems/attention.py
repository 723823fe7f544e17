"""Attention: out = softmax(q @ k^T / sqrt(head)) @ v for each head, causal or not, and the log-sum-exp of each row.

q is (batch, heads, tokens, head), k and v are (batch, kv_heads, tokens, head), all contiguous and of one dtype; query
head h reads key head h // (heads // kv_heads). Causal: query i sees the keys 0 to i.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from kernelpath.course import draw
from kernelpath.course.problem import Case, Problem, Tolerance

# The scores that the reference holds at once, in float64: half a gigabyte.
_SCORES = 1 << 26

# In float32, exp(x) is 0 below the first of these, even as a denormal, and infinite above the second one.
EXP_UNDERFLOWS, EXP_OVERFLOWS = -104, 89

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor, bool]


def inputs(
    rng: torch.Generator,
    batch: int,
    heads: int,
    kv_heads: int,
    tokens: int,
    head: int,
    causal: bool,
    dtype: str = "bfloat16",
) -> Inputs:
    """Generate scores of mean 0 and deviation 1.4: no key decides a row, and no row is an average of all keys."""
    q = draw.normal(rng, batch, heads, tokens, head, dtype=dtype, large=0)
    k = draw.normal(rng, batch, kv_heads, tokens, head, dtype=dtype, large=0).sub_(1)
    v = draw.normal(rng, batch, kv_heads, tokens, head, dtype=dtype)
    return q, k, v, causal


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return out and the natural logarithm of each row's sum of exp(scores), in float64, a few heads at a time."""
    batch, heads, tokens, head = q.shape
    group = heads // k.shape[1]
    out = torch.empty(q.shape, dtype=torch.float64, device=q.device)
    lse = torch.empty(q.shape[:-1], dtype=torch.float64, device=q.device)
    hidden = torch.ones(tokens, tokens, dtype=torch.bool, device=q.device).triu(1) if causal else None
    flat_k = k.flatten(0, 1)
    flat_v = v.flatten(0, 1)
    flat_out = out.flatten(0, 1)
    flat_lse = lse.flatten(0, 1)
    for rows in torch.arange(batch * heads, device=q.device).split(max(1, _SCORES // tokens**2)):
        scores = q.flatten(0, 1)[rows].double() @ flat_k[rows // group].double().mT * head**-0.5
        if hidden is not None:
            scores.masked_fill_(hidden, -torch.inf)
        flat_lse[rows] = torch.logsumexp(scores, -1)
        flat_out[rows] = torch.softmax(scores, -1) @ flat_v[rows // group].double()
    return out, lse


def magnitudes(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return sum(p * |v|) for out; for the log-sum-exp, the same of the magnitudes of the scores' terms."""
    out, _ = reference(q, k, v.abs(), causal)
    _, lse = reference(q.abs(), k.abs(), v, causal)
    return out, lse


def eager(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute attention by its formula, with the scores of as many heads in memory as 2 GB allow."""
    batch, heads, tokens, head = q.shape
    out = torch.empty_like(q)
    lse = q.new_empty(q.shape[:-1], dtype=torch.float32)
    hidden = torch.ones(tokens, tokens, dtype=torch.bool, device=q.device).triu(1) if causal else None
    flat_q = q.flatten(0, 1)
    flat_k = k.flatten(0, 1)
    flat_v = v.flatten(0, 1)
    for rows in torch.arange(batch * heads, device=q.device).split(max(1, (1 << 30) // tokens**2)):
        kv_rows = rows // (heads // k.shape[1])
        scores = flat_q[rows] @ flat_k[kv_rows].mT * head**-0.5
        if hidden is not None:
            scores = scores.masked_fill(hidden, -torch.inf)
        out.flatten(0, 1)[rows] = torch.softmax(scores, -1) @ flat_v[kv_rows]
        lse.flatten(0, 1)[rows] = torch.logsumexp(scores.float(), -1)
    return out, lse


def extreme(rng: torch.Generator, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> None:
    """Set the key heads, in turn: scores that rise from -100 to 100 halfway, one key that decides, scores far below 0.

    The first column of q holds 8, so that the first column of k decides what is added to every score of a key.
    """
    tokens, head = k.shape[2:]
    added = torch.zeros(3, tokens, device=k.device)
    added[0, : tokens // 2] = -100
    added[0, tokens // 2 :] = 100
    added[1, tokens // 3] = 400
    added[2] = -1000
    q[..., 0] = 8
    kinds = (torch.arange(k.shape[0] * k.shape[1], device=k.device) + tokens) % 3
    k.flatten(0, 1)[:, :, 0] = (added[kinds] * head**0.5 / 8).to(k.dtype)


def maximum_from_zero(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Start the maximum of a row at 0: far below it, every exponential is 0 in float32."""
    out, lse = reference(q, k, v, causal)
    lost = lse < EXP_UNDERFLOWS
    return out.masked_fill(lost[..., None], torch.nan), lse.masked_fill(lost, -torch.inf)


def no_maximum(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the exponentials of the scores without a maximum, which overflow float32."""
    out, lse = reference(q, k, v, causal)
    lost = lse > EXP_OVERFLOWS
    return out.masked_fill(lost[..., None], torch.nan), lse.masked_fill(lost, torch.inf)


def softmax_faults(
    attend: Callable[..., tuple[torch.Tensor, torch.Tensor]],
) -> dict[str, Callable[..., torch.Tensor]]:
    """Return the two faults above by name, for another kind of attention that returns out alone.

    Args:
        attend: Returns out in float64 and the largest score of each of its rows, or their log-sum-exp.
    """

    def maximum_from_zero(*inputs: object) -> torch.Tensor:
        out, largest = attend(*inputs)
        return out.masked_fill((largest < EXP_UNDERFLOWS)[..., None], torch.nan)

    def no_maximum(*inputs: object) -> torch.Tensor:
        out, largest = attend(*inputs)
        return out.masked_fill((largest > EXP_OVERFLOWS)[..., None], torch.nan)

    return {"a maximum that begins at 0": maximum_from_zero, "no maximum subtracted": no_maximum}


def compulsory_bytes(
    batch: int, heads: int, kv_heads: int, tokens: int, head: int, causal: bool, dtype: str = "bfloat16"
) -> int:
    """Count q, k and v read, and out and the log-sum-exp written."""
    return batch * tokens * (2 * head * (2 * heads + 2 * kv_heads) + 4 * heads)


def flops(batch: int, heads: int, kv_heads: int, tokens: int, head: int, causal: bool, dtype: str = "bfloat16") -> int:
    """Count two GEMMs of the scores that are not masked."""
    scores = tokens * (tokens + 1) // 2 if causal else tokens**2
    return 4 * batch * heads * head * scores


def case(tokens: int, head: int, causal: bool, *, batch: int = 1, heads: int = 1, kv_heads: int = 1) -> Case:
    """Return a case by its numbers, in bfloat16."""
    return {
        "batch": batch,
        "heads": heads,
        "kv_heads": kv_heads,
        "tokens": tokens,
        "head": head,
        "causal": causal,
        "dtype": "bfloat16",
    }


PROBLEM = Problem(
    inputs=inputs,
    # Tiles hold 32, 64 or 128 queries or keys.
    cases=(
        case(1, 64, False),
        case(63, 64, True, heads=3, kv_heads=3),
        case(64, 64, False, batch=2, heads=2, kv_heads=1),
        case(65, 64, True, heads=6, kv_heads=3),
        case(127, 128, True, heads=2, kv_heads=2),
        case(129, 128, True, heads=2, kv_heads=1),
        case(320, 64, False, heads=4, kv_heads=2),
    ),
    vary=("tokens",),
    far=(case(128, 128, True, batch=16_400, heads=16, kv_heads=16),),
    reference=reference,
    outputs=("out", "lse"),
    tolerance={
        # Rounding out to bfloat16 costs up to 2^-8 = 3.9e-3 of it, rounding each probability for the tensor cores as
        # much of what it contributes: 6.1e-3 in all at 2048 keys, and up to 2.3e-2 of the root mean square where large
        # values of v cancel (4,000 draws). Scores in bfloat16 cost 1.8e-2 in the median. The log-sum-exp is float32
        # throughout, off by 4e-7; scores in bfloat16 cost it 3e-4 at least.
        # Beyond 4,000 draws, atol is not enough: one of 4 million elements was off by 0.24 where 0.16 were allowed. The
        # bound itself is 2^-8 of sum(p * |v|); twice that leaves room for a second rounding of p.
        # A score is a sum of `head` products, which is off by head * 2^-24 of their magnitudes at most.
        "bfloat16": Tolerance(rtol=1e-2, atol=3e-2, mtol=2 * 2**-8),
        "float16": Tolerance(rtol=1.25e-3, atol=4e-3, mtol=2 * 2**-11),  # three more bits
        "float32": Tolerance(rtol=1e-5, atol=1e-5, mtol=64 * 2**-24),
    },
    magnitudes=magnitudes,
    extreme=extreme,
    faults={"a maximum that begins at 0": maximum_from_zero, "no maximum subtracted": no_maximum},
    must_reach={"tokens": 512},  # work grows with their square
    # Heads of 256 take the longest to compile for the machine, beside 65,537 batches.
    gpu_limits=(case(129, 256, True, heads=2, kv_heads=1), case(1, 64, False, batch=65_537)),
    compulsory_bytes=compulsory_bytes,
    flops=flops,
)
