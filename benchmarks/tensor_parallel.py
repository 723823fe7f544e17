"""Run a transformer block on several ranks, each with a share of the heads and of the hidden columns.

Every rank has the complete activations, the rows of wqkv and wgu of its share, and the columns of wo and wdown of its
share. A training step then needs four sums over all ranks: after the attention, after the gated product, and of the
gradients of the inputs of both. Source: Shoeybi et al., *Megatron-LM*, section 3. The kernels are those of
transformer_block's reference. benchmarks/all_reduce.py measures the block as its part "block".
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import torch

# A product of this rank's matrices, summed over all ranks. The next product may overwrite the result.
Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def share(weight: torch.Tensor, rank: int, size: int, *, parts: tuple[int, ...], dim: int) -> torch.Tensor:
    """Return this rank's share of each part of a weight. `parts` are the rows or columns of the parts."""
    return torch.cat([part.chunk(size, dim)[rank] for part in weight.split(parts, dim)], dim)


def shares(
    wqkv: torch.Tensor, wo: torch.Tensor, wgu: torch.Tensor, wdown: torch.Tensor, heads: int, kv_heads: int,
    rank: int, size: int,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """Return the weights of a rank, in the same order. size divides heads, kv_heads and hidden."""
    head = wo.shape[1] // heads
    hidden = wdown.shape[1]
    return (
        share(wqkv, rank, size, parts=(heads * head, kv_heads * head, kv_heads * head), dim=0),
        share(wo, rank, size, parts=(heads * head,), dim=1),
        share(wgu, rank, size, parts=(hidden, hidden), dim=0),
        share(wdown, rank, size, parts=(hidden,), dim=1),
    )


def step(
    block: ModuleType, heads: int, kv_heads: int, summed: Product, x: torch.Tensor, residual: torch.Tensor,
    norm1: torch.Tensor, wqkv: torch.Tensor, wo: torch.Tensor, norm2: torch.Tensor, wgu: torch.Tensor,
    wdown: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, dout: torch.Tensor, ds: torch.Tensor,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """Return the results of transformer_block, with this rank's shares of the weights and of their gradients.

    Args:
        block: The module of the reference.
        heads, kv_heads: The heads of this rank.
    """
    batch, tokens, width = x.shape
    rows = batch * tokens
    hidden = wdown.shape[1]
    n, h, rstd1 = block.norm_forward(x.view(rows, width), residual.view(rows, width), norm1)
    qkv = torch.mm(n, wqkv.t()).view(batch, tokens, -1)
    block.turn(qkv, cos, sin, heads, kv_heads, 1.0)
    mixed, lse = block.attention(qkv, heads, kv_heads)
    m, s, rstd2 = block.norm_forward(summed(mixed.view(rows, -1), wo.t()), h, norm2)
    gate_up = torch.mm(m, wgu.t())
    act = gate_up.new_empty(rows, hidden)
    columns, blocks = block.columns_of_swiglu(hidden)
    block.swiglu[rows, blocks](act, gate_up, hidden, columns)
    out = summed(act, wdown.t()).clone()

    dout, ds = dout.view(rows, width), ds.view(rows, width)
    dact = torch.mm(dout, wdown)
    dwdown = torch.mm(dout.t(), act)
    dgate_up = torch.empty_like(gate_up)
    block.swiglu_backward[rows, blocks](dgate_up, gate_up, dact, hidden, columns)
    dwgu = torch.mm(dgate_up.t(), m)
    ds, dnorm2 = block.norm_backward(summed(dgate_up, wgu), s, ds, norm2, rstd2)
    dwo = torch.mm(ds.t(), mixed.view(rows, -1))
    dmixed = torch.mm(ds, wo).view(batch, tokens, -1)
    dqkv = block.attention_backward(dmixed, qkv, mixed, lse, heads, kv_heads)
    block.turn(dqkv, cos, sin, heads, kv_heads, -1.0)
    dqkv = dqkv.view(rows, -1)
    dwqkv = torch.mm(dqkv.t(), n)
    dx, dnorm1 = block.norm_backward(summed(dqkv, wqkv), h, ds, norm1, rstd1)
    return out.view_as(x), s.view_as(x), dx.view_as(x), dnorm1, dwqkv, dwo, dnorm2, dwgu, dwdown
