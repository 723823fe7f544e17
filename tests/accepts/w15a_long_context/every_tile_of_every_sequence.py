"""As the first kernels for packed sequences: a grid of sequences, heads and as many tiles as one sequence can have."""

import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["sequences", "heads", "group"])
def attention(out, q, k, v, cu_seqlens, sequences, heads, group, scale, HEAD: tl.constexpr, M: tl.constexpr):
    sequence, head = tl.program_id(0) % sequences, tl.program_id(1)
    begin = tl.program_id(0) // sequences * M
    first = tl.load(cu_seqlens + sequence)
    length = tl.load(cu_seqlens + sequence + 1) - first
    if begin >= length:
        return
    kv_heads = heads // group
    row, column = begin + tl.arange(0, M), tl.arange(0, HEAD)
    q += (first.to(tl.int64) * heads + head) * HEAD
    out += (first.to(tl.int64) * heads + head) * HEAD
    k += (first.to(tl.int64) * kv_heads + head // group) * HEAD
    v += (first.to(tl.int64) * kv_heads + head // group) * HEAD
    place = row.to(tl.int64)[:, None] * (heads * HEAD) + column[None, :]
    query = tl.load(q + place, mask=row[:, None] < length, other=0.0)
    top = tl.full([M], -1e38, tl.float32)
    total = tl.zeros([M], tl.float32)
    acc = tl.zeros([M, HEAD], tl.float32)
    for start in range(0, begin + M, M):
        key = start + tl.arange(0, M)
        there = key.to(tl.int64)[:, None] * (kv_heads * HEAD) + column[None, :]
        keys = tl.load(k + there, mask=key[:, None] < length, other=0.0)
        scores = tl.dot(query, keys.T) * scale
        if start == begin:
            scores = tl.where(key[None, :] <= row[:, None], scores, float("-inf"))
        larger = tl.maximum(top, tl.max(scores, 1))
        weight = tl.exp(scores - larger[:, None])
        keep = tl.exp(top - larger)
        values = tl.load(v + there, mask=key[:, None] < length, other=0.0)
        total = total * keep + tl.sum(weight, 1)
        acc = tl.dot(weight.to(tl.bfloat16), values, acc * keep[:, None])
        top = larger
    tl.store(out + place, (acc / total[:, None]).to(tl.bfloat16), mask=row[:, None] < length)


def long_context(q, k, v, cu_seqlens):
    tokens, heads, head = q.shape
    out = torch.empty_like(q)
    sequences = len(cu_seqlens) - 1
    grid = (sequences * triton.cdiv(tokens, 64), heads)
    attention[grid](out, q, k, v, cu_seqlens, sequences, heads, heads // k.shape[1], head**-0.5, head, 64)
    return out
