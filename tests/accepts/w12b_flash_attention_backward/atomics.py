"""One kernel over blocks of keys, five products: dq is added to by atomics, in float32, and rounded at the end."""

import torch
import triton
import triton.language as tl


@triton.jit
def _preprocess(delta, out, dout, rows, HEAD: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * 32 + tl.arange(0, 32)
    at = row[:, None] * HEAD + tl.arange(0, HEAD)[None, :]
    o = tl.load(out + at, mask=(row < rows)[:, None], other=0.0).to(tl.float32)
    do = tl.load(dout + at, mask=(row < rows)[:, None], other=0.0).to(tl.float32)
    tl.store(delta + row, tl.sum(o * do, 1), mask=row < rows)


@triton.jit(do_not_specialize=["tokens", "causal"])
def _backward(
    dq, dk, dv, q, k, v, dout, lse, delta, tokens, causal, scale, group, HEAD: tl.constexpr, BLOCK: tl.constexpr
):
    blocks = tl.cdiv(tokens, BLOCK)
    kv_head = (tl.program_id(0) // blocks).to(tl.int64)
    start = tl.program_id(0) % blocks * BLOCK
    key = start + tl.arange(0, BLOCK)
    column = tl.arange(0, HEAD)[None, :]
    keys = (kv_head * tokens + key)[:, None] * HEAD + column
    of_k = tl.load(k + keys, mask=(key < tokens)[:, None], other=0.0)
    of_v = tl.load(v + keys, mask=(key < tokens)[:, None], other=0.0)
    sum_k = tl.zeros([BLOCK, HEAD], tl.float32)
    sum_v = tl.zeros([BLOCK, HEAD], tl.float32)
    for head in range(kv_head * group, kv_head * group + group):
        for begin in range(start * causal, tokens, BLOCK):
            query = begin + tl.arange(0, BLOCK)
            rows = head * tokens + query
            there = (query < tokens)[:, None]
            of_q = tl.load(q + rows[:, None] * HEAD + column, mask=there, other=0.0)
            do = tl.load(dout + rows[:, None] * HEAD + column, mask=there, other=0.0)
            l2 = tl.load(lse + rows, mask=query < tokens, other=float("inf")) * 1.4426950408889634
            d = tl.load(delta + rows, mask=query < tokens, other=0.0)
            scores = tl.dot(of_k, of_q.T) * (scale * 1.4426950408889634)
            seen = (key < tokens)[:, None] & ((key[:, None] <= query[None, :]) | (causal == 0))
            p = tl.where(seen, tl.exp2(scores - l2[None, :]), 0.0)
            sum_v = tl.dot(p.to(tl.bfloat16), do, sum_v)
            ds = (p * (tl.dot(of_v, do.T) - d[None, :])).to(tl.bfloat16)
            sum_k = tl.dot(ds, of_q, sum_k)
            tl.atomic_add(dq + rows[:, None] * HEAD + column, tl.dot(ds.T, of_k) * scale, mask=there, sem="relaxed")
    tl.store(dk + keys, (sum_k * scale).to(tl.bfloat16), mask=(key < tokens)[:, None])
    tl.store(dv + keys, sum_v.to(tl.bfloat16), mask=(key < tokens)[:, None])


@triton.jit
def _round(out, x, size, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < size).to(tl.bfloat16), mask=at < size)


def flash_attention_backward(q, k, v, out, lse, dout, causal):
    batch, heads, tokens, head = q.shape
    delta = torch.empty_like(lse)
    dq = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
    dk, dv = torch.empty_like(k), torch.empty_like(v)
    rows = batch * heads * tokens
    _preprocess[(triton.cdiv(rows, 32),)](delta, out, dout, rows, HEAD=head)
    _backward[(triton.cdiv(tokens, 32) * batch * k.shape[1],)](
        dq, dk, dv, q, k, v, dout, lse, delta, tokens, causal, head**-0.5, heads // k.shape[1], HEAD=head, BLOCK=32
    )
    rounded = torch.empty_like(q)
    _round[(triton.cdiv(q.numel(), 1024),)](rounded, dq, q.numel(), BLOCK=1024)
    return rounded, dk, dv
