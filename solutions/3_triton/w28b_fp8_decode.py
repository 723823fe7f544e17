"""Attention of one new token over a KV cache in float8, which is never dequantized in memory.

fp8_decode(q, k, v, k_scale, v_scale) takes contiguous tensors that start at a multiple of 16 bytes: q, bfloat16 of
shape (batch, heads, head); k and v, float8_e4m3fn of shape (batch, heads, tokens, head), with finite values; k_scale,
float32 of shape (batch, heads, head), with a scale for each channel of a head's keys; v_scale, float32 of shape (batch,
heads, tokens), with a scale for each token of a head's values. head is 32, 64, 128 or 256, and there is at least one
token. It returns a new tensor of the shape and dtype of q:

    key[t, c] = k[t, c] * k_scale[c]    value[t, c] = v[t, c] * v_scale[t]
    out = softmax(q @ key.T / sqrt(head)) @ value    for each head of each sequence

Scores are at most 1000 and at least -1000. k may have more than 2**32 elements: offsets need 64 bits. Softmax and sums
are in float32. Read each element of the cache once, and write no copy of it to memory. Applying the scales takes fewer
multiplications than the cache has elements. Where should each scale be applied?

The grader checks the values and the bytes that are moved and allocated. On a GPU, it compares the time with operators
that dequantize the cache and then compute the formula.

The grader enforces these limits on the largest case; smaller cases get some slack for partial tiles. Each load or store
may touch at most 2 times as many sectors as its bytes require. In total, global memory accesses may move at most 1.5
times the size of the inputs and outputs. Any workspace may be at most 0.5 times the size of the inputs and outputs.

Bytes: 2 head for the key and value of every token, and 4 for a scale, which makes 545 MB for 16 sequences of 8,192
tokens with 16 heads of 128, or 0.12 ms at the 4.5 TB/s that an H200 reads. Operations: 4 per column of a token, so 2
per byte, and as many conversions. The kernel is memory-bound.

A key's scale depends only on the channel, so it is applied to q, once for each head. A value's scale depends only on
the token, so it is applied to the token's weight. Each scale costs one multiplication, whereas dequantizing each
element costs `tokens` or `head` multiplications.
"""

import torch
import triton
import triton.language as tl

# exp(x) is exp2(x * LOG2_E), and the GPU has an instruction for exp2. The factor is a part of `scale`.
LOG2_E = 1.4426950408889634


@triton.jit(do_not_specialize=["tokens"])
def fp8_decode_kernel(out_ptr, q_ptr, k_ptr, v_ptr, k_scale_ptr, v_scale_ptr, tokens, scale,
                      HEAD: tl.constexpr, TOKENS: tl.constexpr):  # fmt: skip
    """Attend to all tokens of one head of one sequence."""
    head = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, HEAD)
    q = tl.load(q_ptr + head * HEAD + column).to(tl.float32)
    q *= tl.load(k_scale_ptr + head * HEAD + column) * scale
    acc = tl.zeros([HEAD], tl.float32)
    l_i = 0.0
    m_i = -float("inf")
    for first in tl.range(0, tokens, TOKENS):
        token = first + tl.arange(0, TOKENS)
        mask = token < tokens
        offsets = (head * tokens + token)[:, None] * HEAD + column[None, :]
        k = tl.load(k_ptr + offsets, mask=mask[:, None], other=0.0)
        v = tl.load(v_ptr + offsets, mask=mask[:, None], other=0.0)
        v_scale = tl.load(v_scale_ptr + head * tokens + token, mask=mask, other=0.0)
        qk = tl.where(mask, tl.sum(q[None, :] * k.to(tl.float32), axis=1), -float("inf"))
        m_new = tl.maximum(m_i, tl.max(qk, axis=0))
        p = tl.exp2(qk - m_new)
        alpha = tl.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, axis=0)  # the sum of weights has no scale
        acc = acc * alpha + tl.sum((p * v_scale)[:, None] * v.to(tl.float32), axis=0)
        m_i = m_new
    tl.store(out_ptr + head * HEAD + column, (acc / l_i).to(out_ptr.dtype.element_ty))


def fp8_decode(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, k_scale: torch.Tensor, v_scale: torch.Tensor
) -> torch.Tensor:
    out = torch.empty_like(q)
    batch, heads, tokens, head = k.shape
    fp8_decode_kernel[batch * heads,](
        out, q, k, v, k_scale, v_scale, tokens, head**-0.5 * LOG2_E, head, 8192 // head, num_warps=4
    )
    return out
