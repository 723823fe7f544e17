"""An accident: the scores of all queries with all keys are written to memory, and read again by another kernel."""

import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["tokens", "group", "causal"])
def multiply(scores, q, k, tokens, group, causal, scale, HEAD: tl.constexpr, TILE: tl.constexpr):
    blocks = tl.cdiv(tokens, TILE)
    head = (tl.program_id(0) // (blocks * blocks)).to(tl.int64)
    tile = tl.program_id(0) % (blocks * blocks)
    row = (tile // blocks * TILE + tl.arange(0, TILE))[:, None]
    key = (tile % blocks * TILE + tl.arange(0, TILE))[None, :]
    column = tl.arange(0, HEAD)
    query = tl.load(q + (head * tokens + row) * HEAD + column[None, :], mask=row < tokens, other=0.0)
    keys = tl.load(k + (head // group * tokens + key) * HEAD + column[:, None], mask=key < tokens, other=0.0)
    score = tl.where((key <= row) | (causal == 0), tl.dot(query, keys) * scale, -float("inf"))
    tl.store(scores + (head * tokens + row) * tokens + key, score, mask=(row < tokens) & (key < tokens))


@triton.jit(do_not_specialize=["tokens", "group"])
def weigh(out, lse, scores, v, tokens, group, HEAD: tl.constexpr, TILE: tl.constexpr):
    blocks = tl.cdiv(tokens, TILE)
    head = (tl.program_id(0) // blocks).to(tl.int64)
    row = (tl.program_id(0) % blocks * TILE + tl.arange(0, TILE))[:, None]
    column = tl.arange(0, HEAD)[None, :]
    scores += (head * tokens + row) * tokens
    top = tl.full([TILE, 1], -float("inf"), tl.float32)
    for start in range(0, tokens, TILE):
        key = start + tl.arange(0, TILE)[None, :]
        score = tl.load(scores + key, mask=(row < tokens) & (key < tokens), other=-3e38)
        top = tl.maximum(top, tl.max(score, axis=1, keep_dims=True))
    total = tl.zeros([TILE, 1], tl.float32)
    acc = tl.zeros([TILE, HEAD], tl.float32)
    for start in range(0, tokens, TILE):
        key = start + tl.arange(0, TILE)[None, :]
        score = tl.load(scores + key, mask=(row < tokens) & (key < tokens), other=-float("inf"))
        place = start + tl.arange(0, TILE)[:, None]
        values = tl.load(v + (head // group * tokens + place) * HEAD + column, mask=place < tokens, other=0.0)
        weight = tl.exp(score - top)
        total += tl.sum(weight, axis=1, keep_dims=True)
        acc = tl.dot(weight.to(tl.bfloat16), values, acc)
    tl.store(out + (head * tokens + row) * HEAD + column, (acc / total).to(tl.bfloat16), mask=row < tokens)
    tl.store(lse + head * tokens + row, top + tl.log(total), mask=row < tokens)


def flash_attention(q, k, v, causal):
    batch, heads, tokens, head = q.shape
    out, lse = torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)
    scores = q.new_empty((batch, heads, tokens, tokens), dtype=torch.float32)
    blocks, group = triton.cdiv(tokens, 64), heads // k.shape[1]
    multiply[(blocks * blocks * batch * heads,)](scores, q, k, tokens, group, int(causal), head**-0.5, head, 64)
    weigh[(blocks * batch * heads,)](out, lse, scores, v, tokens, group, head, 64)
    return out, lse
