"""One query against a long context: the attention of a decode step, divided among all SMs.

split_kv(q, k, v, sink) takes contiguous tensors that start at a multiple of 16 bytes, all bfloat16 except sink: q of
shape (batch, heads, head), one query for each sequence; k and v of shape (batch, kv_heads, tokens, head); and sink,
float32 of shape (heads,). head is 64 or 128, and heads is a multiple of kv_heads: query head h reads key head h //
(heads // kv_heads). sink is an additional score for each query head, without a key and with a value of 0. The function
returns a new tensor of the shape and dtype of q:

    out = sum(exp(score) * v) / (exp(sink) + sum(exp(score))),  with score = q @ k / sqrt(head)

Scores and sinks are at most 1000 and at least -1000. There may be any number of tokens, heads, and sequences. The same
inputs always give the same bits. k may have more than 2**32 elements: offsets need 64 bits.

Almost all bytes are in k and v. Read them once, with enough programs for the 132 SMs of an H200. In the largest case,
with one key head and 8,500 tokens, no program may read more than 1/132 of k or of v. The grader checks the values, that
the bits are the same for every block order, the shares of k and v that a program reads, and the bytes that are moved
and allocated. On a GPU, it compares the time with the formula written as PyTorch operators.

The grader enforces these limits on the largest case (batch=1 heads=8 kv_heads=1 tokens=8500 head=64 dtype=bfloat16);
smaller cases get some slack for partial tiles. In total, global memory accesses may move at most 2 times the size of
the inputs and outputs. Any workspace may be at most 0.5 times the size of the inputs and outputs.

Bytes: reading keys and values once takes 537 MB for two sequences of 131,072 tokens with 8 key heads of 64, or 119 us
at the 4.5 TB/s at which an H200 reads. Operations: 4 per query head, token, and column, so 8 per byte if 8 query heads
share a key head. Keeping the tensor cores busy would take 27 times as many. The kernel is memory-bound: an H200 took
141 us, and 137 us for PyTorch's attention without a sink. 528 programs took as long, 1,024 programs 160 us, and 128
programs 201 us. It took 13.6 us for 4,096 tokens of one sequence (PyTorch's attention 14.5), and 495 us for 1,048,576
(488).

Flash-Decoding (https://pytorch.org/blog/flash-decoding) splits the context this way. The combination is an online
softmax over the parts, whose state starts with the sink: a maximum of sink, and a sum of exp(sink - sink) = 1.
"""

import torch
import triton
import triton.language as tl

# exp(x) is exp2(x * LOG2_E), and the GPU has an instruction for exp2.
LOG2_E = 1.4426950408889634

# Tokens per tile of keys and values. Parts are whole tiles.
TOKENS = 64

# Parts that combine_kernel reads at a time: all of them, if there are more than four key heads.
PARTS = 64

# The largest number of programs, unless there are more key heads: two for each SM of an H200, all at the same time.
PROGRAMS = 264

# Tiles in flight, by the size of a head. Two programs share the 228 KB of shared memory of an SM.
STAGES = {64: 4, 128: 3}


@triton.jit(do_not_specialize=["tokens", "group", "splits", "tokens_per_part"])
def split_kernel(parts_ptr, lse_ptr, q_ptr, k_ptr, v_ptr, tokens, group, splits, tokens_per_part, scale,
                 GROUP: tl.constexpr, HEAD: tl.constexpr, TOKENS: tl.constexpr):  # fmt: skip
    """Attend to one part of the context with the query heads of one key head."""
    kv_head = tl.program_id(0).to(tl.int64)  # among the key heads of all sequences
    split = tl.program_id(1)
    first = split * tokens_per_part
    last = tl.minimum(first + tokens_per_part, tokens)
    offs_g = tl.arange(0, GROUP)
    offs_d = tl.arange(0, HEAD)[None, :]
    head = kv_head * group + offs_g
    query = tl.load(q_ptr + head[:, None] * HEAD + offs_d, mask=(offs_g < group)[:, None], other=0.0)
    acc = tl.zeros([GROUP, HEAD], tl.float32)
    l_i = tl.zeros([GROUP], tl.float32)
    m_i = tl.full([GROUP], -float("inf"), tl.float32)
    for start in tl.range(first, last, TOKENS):
        token = start + tl.arange(0, TOKENS)
        offsets = (kv_head * tokens + token)[:, None] * HEAD + offs_d
        k = tl.load(k_ptr + offsets, mask=(token < last)[:, None], other=0.0)
        v = tl.load(v_ptr + offsets, mask=(token < last)[:, None], other=0.0)
        qk = tl.where((token < last)[None, :], tl.dot(query, k.T) * scale, -float("inf"))
        m_new = tl.maximum(m_i, tl.max(qk, axis=1))
        p = tl.exp2(qk - m_new[:, None])
        alpha = tl.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, axis=1)
        acc = tl.dot(p.to(query.dtype), v, acc * alpha[:, None])
        m_i = m_new
    slot = head * splits + split
    tl.store(parts_ptr + slot[:, None] * HEAD + offs_d, acc / l_i[:, None], mask=(offs_g < group)[:, None])
    tl.store(lse_ptr + slot, m_i + tl.log2(l_i), mask=offs_g < group)


@triton.jit(do_not_specialize=["heads", "splits"])
def combine_kernel(out_ptr, parts_ptr, lse_ptr, sink_ptr, heads, splits, log2_e,
                   HEAD: tl.constexpr, PARTS: tl.constexpr):  # fmt: skip
    """Combine the parts of one query head with its sink, always in the same order."""
    head = tl.program_id(0).to(tl.int64)
    offs_d = tl.arange(0, HEAD)
    m_i = tl.load(sink_ptr + head % heads) * log2_e
    l_i = 1.0
    acc = tl.zeros([HEAD], tl.float32)
    for start in range(0, splits, PARTS):
        split = start + tl.arange(0, PARTS)
        slot = head * splits + split
        lse = tl.load(lse_ptr + slot, mask=split < splits, other=-float("inf"))
        part = tl.load(parts_ptr + slot[:, None] * HEAD + offs_d[None, :], mask=(split < splits)[:, None], other=0.0)
        m_new = tl.maximum(m_i, tl.max(lse, axis=0))
        weight = tl.exp2(lse - m_new)
        alpha = tl.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(weight, axis=0)
        acc = acc * alpha + tl.sum(weight[:, None] * part, axis=0)
        m_i = m_new
    tl.store(out_ptr + head * HEAD + offs_d, (acc / l_i).to(out_ptr.dtype.element_ty))


def split_kv(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sink: torch.Tensor) -> torch.Tensor:
    batch, heads, head = q.shape
    kv_heads, tokens = k.shape[1:3]
    group = heads // kv_heads
    out = torch.empty_like(q)
    # A part has so many whole tiles that all programs run at the same time. The last part has at least one token.
    tiles_per_part = triton.cdiv(triton.cdiv(tokens, TOKENS), max(1, PROGRAMS // (batch * kv_heads)))
    splits = triton.cdiv(tokens, tiles_per_part * TOKENS)
    parts = q.new_empty((batch, heads, splits, head), dtype=torch.float32)
    lse = q.new_empty((batch, heads, splits), dtype=torch.float32)
    # The query heads of a group are the rows of a tile for tl.dot. An mma instruction has 16 rows.
    split_kernel[batch * kv_heads, splits](
        parts, lse, q, k, v, tokens, group, splits, tiles_per_part * TOKENS, head**-0.5 * LOG2_E,
        max(16, triton.next_power_of_2(group)), head, TOKENS, num_warps=4, num_stages=STAGES[head],
    )  # fmt: skip
    combine_kernel[batch * heads,](out, parts, lse, sink, heads, splits, LOG2_E, head, PARTS, num_warps=4)
    return out
