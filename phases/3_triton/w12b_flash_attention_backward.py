"""Flash attention, backward: dq, dk and dv without the matrix of scores.

flash_attention_backward(q, k, v, out, lse, dout, causal) takes bfloat16 tensors: q, out, and dout of shape (batch,
heads, tokens, head), and k and v of shape (batch, kv_heads, tokens, head). head is 64 or 128, tokens is any number, and
heads is a multiple of kv_heads; query head h reads key head h // (heads // kv_heads). With scores = q @ k^T /
sqrt(head), lse is the natural logarithm of each query's sum of exp(scores), in float32 and of shape (batch, heads,
tokens). out is softmax(scores) @ v as the forward pass rounded it, and dout is its gradient. If causal is True, query i
sees the keys 0 to i. All tensors are contiguous and start at a multiple of 16 bytes. A tensor may have more than 2**32
elements, so offsets need 64 bits. It returns dq, dk, and dv, bfloat16 tensors with the shapes of q, k, and v. On GPUs
older than sm_80, which lack bfloat16, all bfloat16 tensors are float16 instead.

With p = exp(scores - lse), and delta = sum(dout * out) for each query:

    dv = p^T @ dout        ds = p * (dout @ v^T - delta) / sqrt(head)        dq = ds @ k        dk = ds^T @ q

where dk and dv of a key head are sums over the query heads that read it. p and ds exist only one tile at a time;
recompute each tile from q, k, v, dout, lse, and delta. Round p and ds to bfloat16 for the tensor cores, and accumulate
in float32. The grader checks the values, the memory traffic, and on a GPU compares the time with the formulas written
as operators.

The grader enforces these limits on the largest case (batch=1 heads=4 kv_heads=2 tokens=200 head=64 causal=False
dtype=bfloat16); smaller cases get some slack for partial tiles. Each load or store may touch at most 2.1 times the
sectors that its bytes require. Any workspace may be at most 0.4 times the size of the inputs and outputs. The
multiply-adds must run on tensor cores.
"""

import torch
import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


# TODO: one kernel for dq, one for dk and dv, or one for all three with atomics


def flash_attention_backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    dout: torch.Tensor,
    causal: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    raise NotImplementedError("TODO: choose tiles, launch both kernels, then delete this line")
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    return dq, dk, dv
