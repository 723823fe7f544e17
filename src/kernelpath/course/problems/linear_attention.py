"""Linear attention with a decay, as a recurrence over a state: S_t = exp(g_t) S_{t-1} + k_t v_t^T, out_t = S_t^T q_t.

q and k are (batch, heads, tokens, head), v is (batch, heads, tokens, head), all contiguous and of one dtype. g, float32
of shape (batch, heads, tokens), is the logarithm of each token's decay and at most 0. The state of each head, a matrix
of head x head, begins at 0; the one after the last token is the second output, in float32. Mamba-2 has such a decay.
"""

from __future__ import annotations

import torch

from kernelpath.course import draw
from kernelpath.course.problem import Case, Problem, Tolerance

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def inputs(rng: torch.Generator, batch: int, heads: int, tokens: int, head: int, dtype: str = "bfloat16") -> Inputs:
    """Generate q and k of mean 0 and a decay of 2% per token on average, so that a state remembers a chunk or two.

    The values have a mean of 1, so that the terms of a sum don't cancel on average, and a few large ones.
    """
    shape = (batch, heads, tokens, head)
    q = draw.normal(rng, *shape, dtype=dtype, large=0).mul_(head**-0.5)
    k = draw.normal(rng, *shape, dtype=dtype, large=0)
    v = draw.normal(rng, *shape, dtype=dtype)
    g = draw.normal(rng, batch, heads, tokens, large=0).abs_().mul_(-0.02)
    return q, k, v, g


# The length of the reference's chunks. Longer ones have more pairs, and shorter ones take more kernel launches.
_CHUNK = 256


def _in_chunks(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, dtype: torch.dtype, chunk: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return out and the last state in dtype, chunk by chunk, all heads at the same time.

    Only a chunk is converted to dtype at a time. A loop over tokens would launch several kernels for each of them.
    """
    tokens = q.shape[2]
    state = torch.zeros(*q.shape[:2], q.shape[3], v.shape[3], dtype=dtype, device=q.device)
    out = torch.empty(v.shape, dtype=dtype, device=q.device)
    later = torch.ones(chunk, chunk, dtype=torch.bool, device=q.device).triu(1)
    for start in range(0, tokens, chunk):
        part = slice(start, min(start + chunk, tokens))
        query, key, value = (x[:, :, part].to(dtype) for x in (q, k, v))
        size = query.shape[2]
        # The logarithm of the decay from the beginning of the chunk to each of its tokens.
        running = g[:, :, part].to(dtype).cumsum(2)
        # The running sum falls, so differences are at most 0 where the key isn't later than the query. For later keys,
        # the difference could be so large that its exponential is infinite: they are hidden before.
        difference = running[..., :, None] - running[..., None, :]
        factor = difference.masked_fill_(later[:size, :size], -torch.inf).exp_()
        inside = (query @ key.mT * factor) @ value
        out[:, :, part] = inside + torch.exp(running)[..., None] * (query @ state)
        # The decay from each token to the end of the chunk.
        remaining = torch.exp(running[..., -1:] - running)[..., None]
        state = torch.exp(running[..., -1])[..., None, None] * state + (remaining * key).mT @ value
    return out, state


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute in float64, chunk by chunk."""
    return _in_chunks(q, k, v, g, torch.float64, _CHUNK)


def magnitudes(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sum of the magnitudes of all terms of each element, by the same computation."""
    return reference(q.abs(), k.abs(), v.abs(), g)


def eager(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, chunk: int = 64
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute chunk by chunk with operators, in float32."""
    out, state = _in_chunks(q, k, v, g, torch.float32, chunk)
    return out.to(q.dtype), state


def extreme(rng: torch.Generator, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor) -> None:
    """Set the heads, in turn: no decay at all, a decay of e^-4 per token, and a few tokens that forget everything."""
    kinds = (torch.arange(g.shape[0] * g.shape[1], device=g.device) + g.shape[2]) % 3
    flat = g.flatten(0, 1)
    flat[kinds == 0] = 0
    flat[kinds == 1] = -4
    forgets = torch.rand(g.shape[2], generator=rng, device=rng.device) < 0.02
    flat[kinds == 2] = torch.where(forgets, -100.0, -0.001)


def factors_apart(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute exp(G_i) and exp(-G_j) of chunks of 64 tokens in float32: the second one overflows."""
    out, state = reference(q, k, v, g)
    running = torch.cat([part.cumsum(2) for part in g.split(64, dim=2)], dim=2)
    return out.masked_fill((running < -88)[..., None], torch.nan), state


def compulsory_bytes(batch: int, heads: int, tokens: int, head: int, dtype: str = "bfloat16") -> int:
    """Count q, k, v and g read, and out and the last state written."""
    return batch * heads * (tokens * (4 * 2 * head + 4) + 4 * head**2)


def flops(batch: int, heads: int, tokens: int, head: int, dtype: str = "bfloat16") -> int:
    """Count the products of the recurrence: 4 operations per token and element of the state."""
    return 4 * batch * heads * tokens * head**2


def case(tokens: int, head: int, *, batch: int = 1, heads: int = 1) -> Case:
    """Return a case by its numbers, in bfloat16."""
    return {"batch": batch, "heads": heads, "tokens": tokens, "head": head, "dtype": "bfloat16"}


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        case(1, 64, heads=3),
        case(15, 64, heads=3),
        case(64, 128, heads=3),
        case(65, 64, heads=3),
        case(1000, 64, heads=3),
    ),
    vary=("tokens",),
    far=(case(257, 128, batch=8192, heads=16),),
    reference=reference,
    outputs=("out", "state"),
    tolerance={
        # The unit roundoff of bfloat16 is 2^-8. Rounding out costs that much of it. A term from the same chunk is
        # rounded as a weighted score, one from an earlier chunk as a weighted key and as a part of the state; a kernel
        # that weighs its queries rounds these as well: 3 * 2^-8 of the sum of the terms' magnitudes.
        "bfloat16": Tolerance(rtol=2**-8, atol=0.0, mtol=3 * 2**-8),
        # The last state has weighted keys, rounded once, or weighted keys and values. The sums in float32 add 2^-24 for
        # each token and chunk, and a decay of e^-256 per chunk as a float32 sum is off by 2^-17.
        "float32": Tolerance(rtol=0.0, atol=0.0, mtol=2 * 2**-8),
    },
    magnitudes=magnitudes,
    extreme=extreme,
    faults={"the two factors of a decay apart": factors_apart},
    must_reach={"tokens": 1000},
    limits=(case(17, 64, batch=2, heads=3),),
    # Many tokens, and not many sequences: 65,537 states would take a gigabyte.
    gpu_limits=(case(4096, 128, batch=2, heads=4), case(65_537, 64)),
    compulsory_bytes=compulsory_bytes,
    flops=flops,
)
