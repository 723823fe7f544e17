"""Each program makes descriptors of its own head, and walks from the diagonal back to the first key."""

import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["tokens", "group", "causal"])
def attention(out, lse, q, k, v, tokens, group, causal, scale, HEAD: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    blocks = tl.cdiv(tokens, M)
    head = (tl.program_id(0) // blocks).to(tl.int64)
    begin = tl.program_id(0) % blocks * M
    head_at, kv_at = head * tokens * HEAD, head // group * tokens * HEAD
    of_q = tl.make_tensor_descriptor(q + head_at, [tokens, HEAD], [HEAD, 1], [M, HEAD])
    of_k = tl.make_tensor_descriptor(k + kv_at, [tokens, HEAD], [HEAD, 1], [N, HEAD])
    of_v = tl.make_tensor_descriptor(v + kv_at, [tokens, HEAD], [HEAD, 1], [N, HEAD])
    of_out = tl.make_tensor_descriptor(out + head_at, [tokens, HEAD], [HEAD, 1], [M, HEAD])
    row = begin + tl.arange(0, M)
    query = of_q.load([begin, 0])
    top = tl.full([M], float("-inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    acc = tl.zeros([M, HEAD], tl.float32)
    end = tl.minimum(begin + M, tokens) if causal else tokens
    for back in range(tl.cdiv(end, N)):
        start = (tl.cdiv(end, N) - 1 - back) * N
        scores = tl.dot(query, of_k.load([start, 0]).T) * scale
        key = start + tl.arange(0, N)
        hidden = (key >= tokens)[None, :] | ((key[None, :] > row[:, None]) & (causal != 0))
        scores = tl.where(hidden, -1e30, scores)
        larger = tl.maximum(top, tl.max(scores, 1))
        weight = tl.exp2((scores - larger[:, None]) * 1.4426950408889634)
        keep = tl.exp2((top - larger) * 1.4426950408889634)
        total = tl.fma(total, keep, tl.sum(weight, 1))
        acc *= keep[:, None]
        acc += tl.dot(weight.to(tl.bfloat16), of_v.load([start, 0]))
        top = larger
    of_out.store([begin, 0], (acc * (1 / total)[:, None]).to(tl.bfloat16))
    tl.store(lse + head * tokens + row, top + tl.log(total), mask=row < tokens)


def flash_attention(q, k, v, causal):
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device=q.device))
    batch, heads, tokens, head = q.shape
    out, lse = torch.empty_like(q), torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    grid = (triton.cdiv(tokens, 64) * batch * heads,)
    attention[grid](out, lse, q, k, v, tokens, heads // k.shape[1], int(causal), head**-0.5, head, 64, 32)
    return out, lse
