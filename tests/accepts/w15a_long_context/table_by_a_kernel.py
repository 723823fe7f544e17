"""A small kernel writes down whose tile is whose; the large one looks there, with descriptors of its own sequence."""

import torch
import triton
import triton.language as tl


@triton.jit
def tabulate(table, cu_seqlens, M: tl.constexpr):
    sequence = tl.program_id(0)
    first, end = tl.load(cu_seqlens + sequence), tl.load(cu_seqlens + sequence + 1)
    slot = first // M + sequence
    beyond = end // M + sequence + 1
    for tile in range(slot, beyond):
        inside = (tile - slot) * M < end - first
        tl.store(table + 2 * tile, tl.where(inside, sequence, -1))
        tl.store(table + 2 * tile + 1, tile - slot)


@triton.jit(do_not_specialize=["heads", "kv_heads"])
def attention(out, q, k, v, cu_seqlens, table, heads, kv_heads, scale, HEAD: tl.constexpr, M: tl.constexpr):
    sequence = tl.load(table + 2 * tl.program_id(0))
    if sequence < 0:
        return
    tile, head = tl.load(table + 2 * tl.program_id(0) + 1), tl.program_id(1)
    kv_head = head // (heads // kv_heads)
    first = tl.load(cu_seqlens + sequence).to(tl.int64)
    length = tl.load(cu_seqlens + sequence + 1) - first.to(tl.int32)
    wide, narrow = heads * HEAD, kv_heads * HEAD
    of_q = tl.make_tensor_descriptor(q + first * wide + head * HEAD, [length, HEAD], [wide, 1], [M, HEAD])
    of_k = tl.make_tensor_descriptor(k + first * narrow + kv_head * HEAD, [length, HEAD], [narrow, 1], [M, HEAD])
    of_v = tl.make_tensor_descriptor(v + first * narrow + kv_head * HEAD, [length, HEAD], [narrow, 1], [M, HEAD])
    of_out = tl.make_tensor_descriptor(out + first * wide + head * HEAD, [length, HEAD], [wide, 1], [M, HEAD])
    row = tile * M + tl.arange(0, M)
    query = of_q.load([tile * M, 0])
    top = tl.full([M], float("-inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    acc = tl.zeros([M, HEAD], tl.float32)
    for start in range(0, tile * M + M, M):
        scores = tl.dot(query, of_k.load([start, 0]).T) * (scale * 1.4426950408889634)
        scores = tl.where((start + tl.arange(0, M))[None, :] <= row[:, None], scores, -1e30)
        larger = tl.maximum(top, tl.max(scores, 1))
        weight = tl.exp2(scores - larger[:, None])
        keep = tl.exp2(top - larger)
        total = total * keep + tl.sum(weight, 1)
        acc = tl.dot(weight.to(tl.bfloat16), of_v.load([start, 0]), acc * keep[:, None])
        top = larger
    of_out.store([tile * M, 0], (acc / total[:, None]).to(tl.bfloat16))


def long_context(q, k, v, cu_seqlens):
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device=q.device))
    tokens, heads, head = q.shape
    sequences = len(cu_seqlens) - 1
    tiles = tokens // 64 + sequences
    table = torch.empty(tiles, 2, dtype=torch.int32, device=q.device)
    tabulate[(sequences,)](table, cu_seqlens, 64)
    out = torch.empty_like(q)
    attention[tiles, heads](out, q, k, v, cu_seqlens, table, heads, k.shape[1], head**-0.5, head, 64)
    return out
