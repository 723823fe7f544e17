"""Transformer block: forward and backward with the phase's kernels.

transformer_block(x, residual, norm1, wqkv, wo, norm2, wgu, wdown, cos, sin, dout, ds, heads, kv_heads) performs one
training step of a pre-norm block:

    h = x + residual                        n = h * norm1 / sqrt(mean of h^2 over the row + 1e-6)
    q, k, v = n @ wqkv^T, q and k rotated   s = h + attention(q, k, v) @ wo^T
    m = s * norm2 / sqrt(mean of s^2 over the row + 1e-6)
    gate, up = m @ wgu^T                    out = (silu(gate) * up) @ wdown^T

It returns nine new tensors, which are out, s and the gradients of x, norm1, wqkv, wo, norm2, wgu and wdown. Each
gradient has the shape of its tensor. dout and ds are the gradients of out and s. The gradient of residual equals the
gradient of x.

All tensors except cos and sin are bfloat16 (float16 on GPUs older than sm_80, which lack bfloat16), are contiguous, and
start at a multiple of 16 bytes. x, residual, dout and ds have the shape (batch, tokens, width); norm1 and norm2
(width). Weights are (out, in): wqkv ((heads + 2 * kv_heads) * head, width), with the rows of all query heads first,
then the keys' rows, then the values' rows; wo (width, heads * head); wgu (2 * hidden, width), the gate first; wdown
(width, hidden). head is 32, 64 or 128, width and hidden are multiples of 16, and width is at most 8192. The batch and
the number of tokens may have any size, but each tensor has fewer than 2**31 elements. Attention is causal, with scores
q @ k^T / sqrt(head), and query head i reads key head i // (heads // kv_heads). cos and sin are float32 of shape
(tokens, head / 2): the pair (a, b) of the elements i and i + head / 2 of a query or key of token t becomes (a * cos - b
* sin, b * cos + a * sin) with cos[t, i] and sin[t, i].

The GEMMs are calls to torch.mm, some of them on transposed views. torch.mm runs the library's kernel on a GPU, and a
replacement kernel on the PTX machine. You write everything else. Reuse the kernels of the previous weeks, and adapt
them to the memory layout of this block's tensors. q, k and v are columns of one matrix, so you don't need to transpose
or copy anything. The grader checks the values against float64. On a GPU, it compares the time with the block
written as PyTorch operators, with autograd.
"""

import torch
import triton
import triton.language as tl

EPS = 1e-6


# TODO: the norm with its addition, and its gradient plus the gradient that bypasses the norm
# TODO: rotation, and back
# TODO: attention, forward and backward, on columns of one matrix
# TODO: silu(gate) * up, and its gradient


def transformer_block(
    x: torch.Tensor,
    residual: torch.Tensor,
    norm1: torch.Tensor,
    wqkv: torch.Tensor,
    wo: torch.Tensor,
    norm2: torch.Tensor,
    wgu: torch.Tensor,
    wdown: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    dout: torch.Tensor,
    ds: torch.Tensor,
    heads: int,
    kv_heads: int,
) -> tuple[torch.Tensor, ...]:
    raise NotImplementedError("TODO: forward, then backward in the opposite order; keep what the gradients read")
