"""Attention of one new token over a KV cache in float8, which is never dequantized in memory.

fp8_decode(q, k, v, k_scale, v_scale) takes contiguous tensors that start at a multiple of 16 bytes: q, bfloat16 of
shape (batch, heads, head); k and v, float8_e4m3fn of shape (batch, heads, tokens, head), with finite values; k_scale,
float32 of shape (batch, heads, head), with a scale for each channel of a head's keys; v_scale, float32 of shape (batch,
heads, tokens), with a scale for each token of a head's values. Scales are positive. head is 32, 64, 128 or 256, and
there is at least one token. It returns a new tensor of the shape and dtype of q:

    key[t, c] = k[t, c] * k_scale[c]    value[t, c] = v[t, c] * v_scale[t]
    out = softmax(q @ key.T / sqrt(head)) @ value    for each head of each sequence

Scores are at most 1000 and at least -1000. k may have more than 2**32 elements: offsets need 64 bits. Softmax and sums
are in float32. Read each element of the cache once, and never write a copy of it to memory. Applying the scales takes
fewer multiplications than the cache has elements. Where should each scale be applied?

Start with one program for each head. Then divide the tokens among more programs, and count the reductions over threads
in each iteration of your loop: the kernel should be faster than attention over a bfloat16 cache of twice the size.

The grader checks the values and the bytes that are moved and allocated. On a GPU, it compares the time with operators
that dequantize the cache and then compute the formula.

The grader enforces these limits on the largest case (batch=1 heads=4 tokens=1000 head=128); smaller cases get some
slack for partial tiles. Each load or store may touch at most 2 times the sectors that its bytes require. In total,
global memory accesses may move at most 1.5 times the size of the inputs and outputs. Any workspace may be at most 0.5
times the size of the inputs and outputs.

Bytes: 2 head for the key and value of every token, and 4 for a scale, which makes 545 MB for 16 sequences of 8,192
tokens with 16 heads of 128, or 0.12 ms at the 4.5 TB/s at which an H200 reads. Operations: 4 per column of a token, so
2 per byte, and as many conversions. The kernel is memory-bound.

A key's scale depends only on the channel, so it is applied to q, once for each head. A value's scale depends only on
the token, so it is applied to the token's weight. Each scale costs one multiplication, whereas dequantizing each
element costs `tokens` or `head` multiplications.

A tile of tokens with one running maximum reduces scores and values over all threads in each iteration, through shared
memory and barriers. Here, each of a program's slots has a softmax of its own. A slot is a group of head / 16 threads,
and each thread loads 16 bytes of a token. Only a token's score is reduced in the loop, by shuffles within the slot. The
slots are merged once, at the end. The tokens of a head are divided into parts, as in Flash-Decoding
(https://pytorch.org/blog/flash-decoding), and a second kernel merges the parts.

Measured on an H200, at 16 sequences of 8,192 tokens with 16 heads of 128: 145 us for this kernel (3,755 GB/s), and 252
us for PyTorch's attention over a bfloat16 cache of twice the size. In an earlier run, tiles of 64 tokens with one
maximum took 377 us, and slots with 2 to 10 parts per head took 141 to 148 us. Copying tiles to shared memory ahead of
time (num_stages=3) took 143 to 147 us, so it gained nothing. Slots of one warp took 152 to 166 us.
"""

import torch
import triton
import triton.language as tl

# exp(x) is exp2(x * LOG2_E), and the GPU has an instruction for exp2. The factor is a part of `scale`.
LOG2_E = 1.4426950408889634

THREADS = 128
"""Threads of a program that attends to a part."""

ROUNDS = 4
"""Tokens that a slot loads at once."""

PROGRAMS = 528
"""The smallest number of programs for a long context: four for each SM of an H200."""

MAX_PARTS = 128
"""Parts of one head that combine_kernel can read at once."""


@triton.jit(do_not_specialize=["tokens", "splits", "tokens_per_part"])
def split_kernel(parts_ptr, lse_ptr, q_ptr, k_ptr, v_ptr, k_scale_ptr, v_scale_ptr,
                 tokens, splits, tokens_per_part, scale,
                 HEAD: tl.constexpr, SLOTS: tl.constexpr, ROUNDS: tl.constexpr):  # fmt: skip
    """Attend to one part of the tokens of one head. Each slot has a softmax of its own, over every SLOTS-th token."""
    head = tl.program_id(0).to(tl.int64)
    split = tl.program_id(1)
    first = split * tokens_per_part
    last = tl.minimum(first + tokens_per_part, tokens)
    offs_d = tl.arange(0, HEAD)
    q = tl.load(q_ptr + head * HEAD + offs_d).to(tl.float32)
    q *= tl.load(k_scale_ptr + head * HEAD + offs_d) * scale
    acc = tl.zeros([SLOTS, HEAD], tl.float32)
    l_i = tl.zeros([SLOTS], tl.float32)
    m_i = tl.full([SLOTS], -1e38, tl.float32)  # finite, so that a slot without tokens has no inf - inf
    # Triton distributes axis 2 over threads, then axis 0. A thread has all elements of axis 1.
    offs_n = tl.arange(0, SLOTS)[:, None] + tl.arange(0, ROUNDS)[None, :] * SLOTS
    for start in tl.range(first, last, SLOTS * ROUNDS):
        token = start + offs_n
        mask = token < last
        offsets = (head * tokens + token)[:, :, None] * HEAD + offs_d[None, None, :]
        k = tl.load(k_ptr + offsets, mask=mask[:, :, None], other=0.0)
        v = tl.load(v_ptr + offsets, mask=mask[:, :, None], other=0.0)
        v_scale = tl.load(v_scale_ptr + head * tokens + token, mask=mask, other=0.0)
        qk = tl.where(mask, tl.sum(q[None, None, :] * k.to(tl.float32), axis=2), -float("inf"))
        m_new = tl.maximum(m_i, tl.max(qk, axis=1))
        p = tl.exp2(qk - m_new[:, None])
        alpha = tl.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, axis=1)  # the sum of weights has no scale
        acc = acc * alpha[:, None] + tl.sum((p * v_scale)[:, :, None] * v.to(tl.float32), axis=1)
        m_i = m_new
    m = tl.max(m_i, axis=0)
    weight = tl.exp2(m_i - m)
    l_sum = tl.sum(l_i * weight, axis=0)
    slot = head * splits + split
    tl.store(parts_ptr + slot * HEAD + offs_d, tl.sum(acc * weight[:, None], axis=0) / l_sum)
    tl.store(lse_ptr + slot, m + tl.log2(l_sum))


@triton.jit(do_not_specialize=["splits"])
def combine_kernel(out_ptr, parts_ptr, lse_ptr, splits, HEAD: tl.constexpr, SPLITS: tl.constexpr):
    """Average the parts of one head, weighted by their sums of exponentials."""
    head = tl.program_id(0).to(tl.int64)
    split = tl.arange(0, SPLITS)
    slot = head * splits + split
    offs_d = tl.arange(0, HEAD)
    lse = tl.load(lse_ptr + slot, mask=split < splits, other=-float("inf"))
    part = tl.load(parts_ptr + slot[:, None] * HEAD + offs_d[None, :], mask=(split < splits)[:, None], other=0.0)
    weight = tl.exp2(lse - tl.max(lse, axis=0))
    out = tl.sum(weight[:, None] * part, axis=0) / tl.sum(weight, axis=0)
    tl.store(out_ptr + head * HEAD + offs_d, out.to(out_ptr.dtype.element_ty))


def fp8_decode(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, k_scale: torch.Tensor, v_scale: torch.Tensor
) -> torch.Tensor:
    batch, heads, tokens, head = k.shape
    out = torch.empty_like(q)
    slots = 16 * THREADS // head  # a thread loads 16 bytes of a token
    tiles = triton.cdiv(tokens, slots * ROUNDS)
    tiles_per_part = triton.cdiv(tiles, min(MAX_PARTS, triton.cdiv(PROGRAMS, batch * heads)))
    splits = triton.cdiv(tiles, tiles_per_part)
    parts = q.new_empty((batch * heads, splits, head), dtype=torch.float32)
    lse = q.new_empty((batch * heads, splits), dtype=torch.float32)
    split_kernel[batch * heads, splits](
        parts, lse, q, k, v, k_scale, v_scale, tokens, splits, tiles_per_part * slots * ROUNDS,
        head**-0.5 * LOG2_E, head, slots, ROUNDS, num_warps=THREADS // 32,
    )  # fmt: skip
    combine_kernel[batch * heads,](out, parts, lse, splits, head, triton.next_power_of_2(splits), num_warps=4)
    return out
