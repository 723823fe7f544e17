"""One loop, pointers, and a mask on every block of scores."""

import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["tokens", "heads", "kv_heads", "causal"])
def attention(out, lse, q, k, v, tokens, heads, kv_heads, causal, scale, HEAD: tl.constexpr,
              QUERIES: tl.constexpr, KEYS: tl.constexpr):  # fmt: skip
    blocks = tl.cdiv(tokens, QUERIES)
    batch_head = (tl.program_id(0) // blocks).to(tl.int64)
    batch, head = batch_head // heads, batch_head % heads
    kv_head = batch * kv_heads + head // (heads // kv_heads)
    begin = tl.program_id(0) % blocks * QUERIES
    row = begin + tl.arange(0, QUERIES)[:, None]
    column = tl.arange(0, HEAD)[None, :]
    query = tl.load(q + (batch_head * tokens + row) * HEAD + column, mask=row < tokens, other=0.0)
    top = tl.full([QUERIES, 1], -float("inf"), tl.float32)
    total = tl.zeros([QUERIES, 1], tl.float32)
    acc = tl.zeros([QUERIES, HEAD], tl.float32)
    last = tl.minimum(begin + QUERIES, tokens) if causal else tokens
    for start in range(0, last, KEYS):
        place = start + tl.arange(0, KEYS)[:, None]
        keys = tl.load(k + (kv_head * tokens + place) * HEAD + column, mask=place < tokens, other=0.0)
        values = tl.load(v + (kv_head * tokens + place) * HEAD + column, mask=place < tokens, other=0.0)
        scores = tl.dot(query, keys.T) * scale
        key = start + tl.arange(0, KEYS)[None, :]
        scores = tl.where((key < tokens) & ((key <= row) | (causal == 0)), scores, -float("inf"))
        larger = tl.maximum(top, tl.max(scores, axis=1, keep_dims=True))
        weight = tl.exp(scores - larger)
        total = total * tl.exp(top - larger) + tl.sum(weight, axis=1, keep_dims=True)
        acc = tl.dot(weight.to(tl.bfloat16), values, acc * tl.exp(top - larger))
        top = larger
    tl.store(out + (batch_head * tokens + row) * HEAD + column, (acc / total).to(tl.bfloat16), mask=row < tokens)
    tl.store(lse + batch_head * tokens + row, top + tl.log(total), mask=row < tokens)


def flash_attention(q, k, v, causal):
    batch, heads, tokens, head = q.shape
    out = torch.empty_like(q)
    lse = torch.empty(batch, heads, tokens, device=q.device)
    grid = (triton.cdiv(tokens, 64) * batch * heads,)
    attention[grid](out, lse, q, k, v, tokens, heads, k.shape[1], int(causal), head**-0.5, head, 64, 32)
    return out, lse
