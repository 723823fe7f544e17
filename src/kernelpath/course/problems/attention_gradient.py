"""The gradients of attention: dq, dk, dv from q, k, v, the output, its log-sum-exp, and the gradient of the output.

p = exp(q @ k^T / sqrt(head) - lse) comes back from what the forward pass kept, and with delta = sum(dout * out) of each
row, ds = p * (dout @ v^T - delta) / sqrt(head). Then dq = ds @ k, dk = ds^T @ q and dv = p^T @ dout, where dk and dv of
a key head are sums over the query heads that read it. Shapes are those of attention.

out is given in the dtype of q, and delta follows from it as it is given.
"""

from __future__ import annotations

from typing import Any

import torch

from kernelpath.course import draw
from kernelpath.course.problem import Problem, Tolerance
from kernelpath.course.problems import attention
from kernelpath.course.problems.attention import case

# The scores that the reference holds at once, a few times in float64: a quarter of a gigabyte each.
_SCORES = 1 << 25

# The index of lse in the inputs.
LSE = 4

# The number of queries after which the fault rounds its sum to bfloat16.
_ROUNDED = 64

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, bool]
Gradients = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


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
    """Generate v and dout with mean 2, so that dp and delta are large beside their difference, and no large values.

    With causal, dout grows with the number of keys that a query sees, so that dq is of one size. Else the first rows,
    and their rounding, were large beside all others.
    """
    shapes = [(batch, count, tokens, head) for count in (heads, kv_heads, kv_heads, heads)]
    q, k, v, dout = (draw.normal(rng, *shape, dtype=dtype, large=0) for shape in shapes)
    if q.is_meta:
        lse = q.new_empty(q.shape[:3], dtype=torch.float32)
        return q, k.to("meta"), v.to("meta"), torch.empty_like(q), lse, dout, causal
    for tensor, shift in ((q, -1), (k, -1), (v, 1), (dout, 1)):
        tensor += shift
    if causal:
        dout *= torch.arange(1, tokens + 1, device=q.device).div(tokens).sqrt()[:, None].to(q.dtype)
    out, lse = attention.reference(q, k, v, causal)
    return q, k, v, out.to(q.dtype), lse.float(), dout, causal


def reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    dout: torch.Tensor,
    causal: bool,
) -> Gradients:
    """Compute in float64, a few query heads at a time."""
    batch, heads, tokens, head = q.shape
    group = heads // k.shape[1]
    scale = head**-0.5
    dq, dk, dv = (torch.zeros(t.shape, dtype=torch.float64, device=t.device) for t in (q, k, v))
    hidden = torch.ones(tokens, tokens, dtype=torch.bool, device=q.device).triu(1) if causal else None
    for rows in torch.arange(batch * heads, device=q.device).split(max(1, _SCORES // tokens**2)):
        of = rows // group
        query, result, saved_lse, upper = (t.flatten(0, 1)[rows].double() for t in (q, out, lse, dout))
        key, value = (t.flatten(0, 1)[of].double() for t in (k, v))
        p = (query @ key.mT * scale - saved_lse[..., None]).exp_()
        if hidden is not None:
            p.masked_fill_(hidden, 0)
        dv.flatten(0, 1).index_add_(0, of, p.mT @ upper)
        ds = p.mul_(upper @ value.mT - (upper * result).sum(-1, keepdim=True)).mul_(scale)
        dq.flatten(0, 1)[rows] = ds @ key
        dk.flatten(0, 1).index_add_(0, of, ds.mT @ query)
    return dq, dk, dv


def eager(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    dout: torch.Tensor,
    causal: bool,
) -> Gradients:
    """Compute the formulas with an operator for each step, and all scores in memory."""
    tokens = q.shape[2]
    head = q.shape[3]
    group = q.shape[1] // k.shape[1]
    every_k = k.repeat_interleave(group, 1)
    every_v = v.repeat_interleave(group, 1)
    p = torch.exp(q @ every_k.mT * head**-0.5 - lse[..., None]).to(q.dtype)
    if causal:
        p = p.tril()
    delta = (dout.float() * out.float()).sum(-1, keepdim=True)
    ds = (p * (dout @ every_v.mT - delta) * head**-0.5).to(q.dtype)
    grouped = (*k.shape[:2], group, tokens, head)
    return ds @ every_k, (ds.mT @ q).view(grouped).sum(2), (p.mT @ dout).view(grouped).sum(2)


def extreme(
    rng: torch.Generator,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    dout: torch.Tensor,
    causal: bool,
) -> None:
    """Set all scores of a query near 0, 200 or -200 by adding to q, which counts because each row of k has mean 1.

    The first is near 0: a causal query that sees one key has a ds of rounding errors alone, and dk takes them times q.

    Every second key head has queries of zeros instead, so that all keys weigh the same. The gradients of the second
    half of its queries undo those of the first, save for small integers: the sums of dv get a hundred times as large.
    """
    batch, heads, tokens, head = q.shape
    alike = torch.arange(batch * heads, device=q.device) // (heads // k.shape[1]) % 2 == 1
    k[..., head // 2 :] = 2 - k[..., : head // 2]
    q += (200 * ((torch.arange(tokens, device=q.device) + 1) % 3 - 1) * head**-0.5).to(q.dtype)[:, None]
    q.flatten(0, 1)[alike] = 0
    if not causal:
        undone = torch.randint(0, 5, dout.shape, generator=rng, device=q.device).to(q.dtype)
        undone[:, :, 1 : tokens // 2 : 2] = large = 1024 + 8 * undone[:, :, 1 : tokens // 2 : 2]
        undone[:, :, tokens - large.shape[2] :] = -large
        dout.flatten(0, 1)[alike] = undone.flatten(0, 1)[alike]
    forward_outputs = attention.reference(q, k, v, causal)
    out.copy_(forward_outputs[0])
    lse.copy_(forward_outputs[1])


def padding_unmasked(*inputs: Any) -> Gradients:
    """Include keys of zeros past the end: 0 in every sum, unless exp(0 - lse) is infinite."""
    dq, dk, dv = reference(*inputs)
    return dq + 0 * torch.exp(-inputs[LSE])[..., None], dk, dv


def lse_not_subtracted(*inputs: Any) -> Gradients:
    """Compute exp(scores) / exp(lse), which overflow float32."""
    dq, dk, dv = reference(*inputs)
    return dq + 0 * torch.exp(inputs[LSE])[..., None], dk, dv


def summed_in_bfloat16(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    dout: torch.Tensor,
    causal: bool,
) -> Gradients:
    """Round dv to bfloat16 after each block of queries."""
    dq, dk, total = reference(q, k, v, out, lse, dout, causal)
    total = torch.zeros_like(total)
    for begin in range(0, q.shape[2], _ROUNDED):
        upper = torch.zeros_like(dout)
        upper[:, :, begin : begin + _ROUNDED] = dout[:, :, begin : begin + _ROUNDED]
        total = (total + reference(q, k, v, out, lse, upper, causal)[2]).to(dout.dtype).double()
    return dq, dk, total


def compulsory_bytes(
    batch: int, heads: int, kv_heads: int, tokens: int, head: int, causal: bool, dtype: str = "bfloat16"
) -> int:
    """Count q, out, dout, k, v and the log-sum-exp read, and dq, dk and dv written."""
    return batch * tokens * (2 * head * (4 * heads + 4 * kv_heads) + 4 * heads)


def flops(batch: int, heads: int, kv_heads: int, tokens: int, head: int, causal: bool, dtype: str = "bfloat16") -> int:
    """Count five GEMMs, where the forward pass has two."""
    return 5 * attention.flops(batch, heads, kv_heads, tokens, head, causal) // 2


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        case(2, 64, True),
        case(31, 64, False, batch=2, heads=2, kv_heads=2),
        case(192, 64, True, heads=2, kv_heads=1),  # blocks before the diagonal, and behind it
        case(67, 64, False, heads=2, kv_heads=1),
        case(130, 128, False, heads=2, kv_heads=2),
        case(200, 64, False, heads=4, kv_heads=2),
    ),
    vary=("tokens",),
    far=(case(130, 128, False, batch=16_400, heads=16, kv_heads=16),),
    reference=reference,
    outputs=("dq", "dk", "dv"),
    # Rounding a gradient to bfloat16 costs up to 2^-8 = 3.9e-3 of it. What rounding p and ds for the tensor cores adds
    # is 3e-2 of the root mean square at most, and 8.8e-2 among the 8 million extreme values of the case for a GPU (the
    # largest of eight seeds). Scores and dout @ v^T in bfloat16 cost 0.16 to 0.33, save in the smallest case.
    # float16 has three more bits: an eighth of that.
    # There are no magnitudes: what is p * |dout| apart from its sign would excuse a sum of dv in bfloat16.
    tolerance={"bfloat16": Tolerance(rtol=5e-3, atol=0.12), "float16": Tolerance(rtol=1e-3, atol=1.5e-2)},
    extreme=extreme,
    faults={
        "keys past the end with a weight": padding_unmasked,
        "exponentials of the scores themselves": lse_not_subtracted,
        "a sum in bfloat16": summed_in_bfloat16,
    },
    limits=(case(518, 64, True),),
    must_reach={"tokens": 512},  # work grows with their square: as much as in the largest case
    gpu_limits=(case(2, 64, True, batch=65_537),),
    compulsory_bytes=compulsory_bytes,
    flops=flops,
)
