"""Two kernels that compute the scores again, one for dq and one for dk and dv, with pointers and masks."""

import torch
import triton
import triton.language as tl

QUERIES, KEYS = 32, 32


@triton.jit(do_not_specialize=["tokens", "causal"])
def of_queries(
    dq, delta, q, k, v, out, lse, dout, tokens, causal, scale, group,
    HEAD: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(tokens, QUERIES)
    head = (tl.program_id(0) // blocks).to(tl.int64)
    query = tl.program_id(0) % blocks * QUERIES + tl.arange(0, QUERIES)
    key = tl.arange(0, KEYS)
    column = tl.arange(0, HEAD)[None, :]
    inside = (query < tokens)[:, None]
    rows = head * tokens + query
    of_q = tl.load(q + rows[:, None] * HEAD + column, mask=inside, other=0.0)
    upper = tl.load(dout + rows[:, None] * HEAD + column, mask=inside, other=0.0)
    result = tl.load(out + rows[:, None] * HEAD + column, mask=inside, other=0.0)
    centre = tl.sum(upper.to(tl.float32) * result.to(tl.float32), axis=1)
    tl.store(delta + rows, centre, mask=query < tokens)
    kept = tl.load(lse + rows, mask=query < tokens, other=0.0)
    total = tl.zeros([QUERIES, HEAD], tl.float32)
    end = tokens
    if causal:
        end = tl.minimum(tokens, tl.program_id(0) % blocks * QUERIES + QUERIES)
    for begin in range(0, end, KEYS):
        keys = head // group * tokens + begin + key
        there = (begin + key < tokens)[:, None]
        of_k = tl.load(k + keys[:, None] * HEAD + column, mask=there, other=0.0)
        of_v = tl.load(v + keys[:, None] * HEAD + column, mask=there, other=0.0)
        seen = (begin + key < tokens)[None, :] & ((begin + key[None, :] <= query[:, None]) | (causal == 0))
        p = tl.where(seen, tl.exp(tl.dot(of_q, of_k.T) * scale - kept[:, None]), 0.0)
        ds = p * (tl.dot(upper, of_v.T) - centre[:, None]) * scale
        total += tl.dot(ds.to(tl.bfloat16), of_k)
    tl.store(dq + rows[:, None] * HEAD + column, total.to(tl.bfloat16), mask=inside)


@triton.jit(do_not_specialize=["tokens", "causal"])
def of_keys(
    dk, dv, delta, q, k, v, lse, dout, tokens, causal, scale, group,
    HEAD: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(tokens, KEYS)
    kv_head = (tl.program_id(0) // blocks).to(tl.int64)
    first = tl.program_id(0) % blocks * KEYS
    key = first + tl.arange(0, KEYS)
    column = tl.arange(0, HEAD)[None, :]
    inside = (key < tokens)[:, None]
    keys = kv_head * tokens + key
    of_k = tl.load(k + keys[:, None] * HEAD + column, mask=inside, other=0.0)
    of_v = tl.load(v + keys[:, None] * HEAD + column, mask=inside, other=0.0)
    total_k = tl.zeros([KEYS, HEAD], tl.float32)
    total_v = tl.zeros([KEYS, HEAD], tl.float32)
    begin_at = 0
    if causal:
        begin_at = first // QUERIES * QUERIES
    for member in range(group):
        head = kv_head * group + member
        for begin in range(begin_at, tokens, QUERIES):
            query = begin + tl.arange(0, QUERIES)
            rows = head * tokens + query
            there = (query < tokens)[:, None]
            of_q = tl.load(q + rows[:, None] * HEAD + column, mask=there, other=0.0)
            upper = tl.load(dout + rows[:, None] * HEAD + column, mask=there, other=0.0)
            kept = tl.load(lse + rows, mask=query < tokens, other=0.0)
            centre = tl.load(delta + rows, mask=query < tokens, other=0.0)
            seen = (query < tokens)[:, None] & ((key[None, :] <= query[:, None]) | (causal == 0))
            p = tl.where(seen, tl.exp(tl.dot(of_q, of_k.T) * scale - kept[:, None]), 0.0)
            total_v += tl.dot(p.to(tl.bfloat16).T, upper)
            ds = p * (tl.dot(upper, of_v.T) - centre[:, None]) * scale
            total_k += tl.dot(ds.to(tl.bfloat16).T, of_q)
    tl.store(dk + keys[:, None] * HEAD + column, total_k.to(tl.bfloat16), mask=inside)
    tl.store(dv + keys[:, None] * HEAD + column, total_v.to(tl.bfloat16), mask=inside)


def flash_attention_backward(q, k, v, out, lse, dout, causal):
    batch, heads, tokens, head = q.shape
    kv_heads = k.shape[1]
    scale, group = head**-0.5, heads // kv_heads
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    delta = torch.empty_like(lse)
    of_queries[(triton.cdiv(tokens, QUERIES) * batch * heads,)](
        dq, delta, q, k, v, out, lse, dout, tokens, causal, scale, group, HEAD=head, QUERIES=QUERIES, KEYS=KEYS
    )
    of_keys[(triton.cdiv(tokens, KEYS) * batch * kv_heads,)](
        dk, dv, delta, q, k, v, lse, dout, tokens, causal, scale, group, HEAD=head, QUERIES=QUERIES, KEYS=KEYS
    )
    return dq, dk, dv
