"""Pointers and masks. Each program walks over the sequences, and counts their tiles, until it finds its own."""

import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["sequences", "heads", "kv_heads"])
def attention(out, q, k, v, cu_seqlens, sequences, heads, kv_heads, scale, HEAD: tl.constexpr, M: tl.constexpr):
    head = tl.program_id(1)
    kv_head = head // (heads // kv_heads)
    tile, first, length = tl.program_id(0), 0, 0
    sequence = 0
    found = False
    while sequence < sequences and not found:
        first = tl.load(cu_seqlens + sequence)
        length = tl.load(cu_seqlens + sequence + 1) - first
        found = tile * M < length
        if not found:
            tile -= tl.cdiv(length, M)
        sequence += 1
    if not found:
        return
    row = tile * M + tl.arange(0, M)
    column = tl.arange(0, HEAD)[None, :]
    inside = (row < length)[:, None]
    place = ((first.to(tl.int64) + row) * heads + head)[:, None] * HEAD + column
    query = tl.load(q + place, mask=inside, other=0.0)
    top = tl.full([M], float("-inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    acc = tl.zeros([M, HEAD], tl.float32)
    for start in range(0, tl.minimum((tile + 1) * M, length), M):
        key = start + tl.arange(0, M)
        there = ((first.to(tl.int64) + key) * kv_heads + kv_head)[:, None] * HEAD + column
        keys = tl.load(k + there, mask=(key < length)[:, None], other=0.0)
        values = tl.load(v + there, mask=(key < length)[:, None], other=0.0)
        scores = tl.dot(query, keys.T) * scale
        scores = tl.where(key[None, :] <= row[:, None], scores, float("-inf"))
        larger = tl.maximum(top, tl.max(scores, 1))
        weight = tl.exp(scores - larger[:, None])
        keep = tl.exp(top - larger)
        total = total * keep + tl.sum(weight, 1)
        acc = acc * keep[:, None] + tl.dot(weight.to(tl.bfloat16), values)
        top = larger
    tl.store(out + place, (acc / total[:, None]).to(tl.bfloat16), mask=inside)


def long_context(q, k, v, cu_seqlens):
    tokens, heads, head = q.shape
    out, sequences = torch.empty_like(q), len(cu_seqlens) - 1
    grid = (tokens // 64 + sequences, heads)
    attention[grid](out, q, k, v, cu_seqlens, sequences, heads, k.shape[1], head**-0.5, head, 64)
    return out
