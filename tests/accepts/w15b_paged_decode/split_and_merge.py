"""Flash-decoding: every sequence in parts of 512 tokens, a program for each, and a second kernel that merges them."""

import torch
import triton
import triton.language as tl

PART = 512


@triton.jit(do_not_specialize=["width", "page", "group", "parts"])
def attend(partial, lse, q, k_pages, v_pages, block_table, lengths, width, page, group, parts, scale,
           GROUP: tl.constexpr, HEAD: tl.constexpr, N: tl.constexpr, PART: tl.constexpr):  # fmt: skip
    part, kv_head, kv_heads = tl.program_id(0) % parts, tl.program_id(1), tl.num_programs(1)
    sequence = (tl.program_id(0) // parts).to(tl.int64)
    length = tl.load(lengths + sequence)
    first, last = part * PART, tl.minimum(part * PART + PART, length)
    if first >= length:
        return
    member, column = tl.arange(0, GROUP)[:, None], tl.arange(0, HEAD)[None, :]
    row = (sequence * kv_heads + kv_head) * group + member
    query = tl.load(q + row * HEAD + column, mask=member < group, other=0.0)
    top = tl.full([GROUP, 1], float("-inf"), tl.float32)
    total = tl.zeros([GROUP, 1], tl.float32)
    acc = tl.zeros([GROUP, HEAD], tl.float32)
    for start in range(first, last, N):
        token = start + tl.arange(0, N)
        number = tl.load(block_table + sequence * width + token // page, mask=token < last, other=0).to(tl.int64)
        there = ((number * page + token % page) * kv_heads + kv_head)[:, None] * HEAD + column
        keys = tl.load(k_pages + there, mask=token[:, None] < last, other=0.0)
        values = tl.load(v_pages + there, mask=token[:, None] < last, other=0.0)
        scores = tl.where(token[None, :] < last, tl.dot(query, keys.T) * scale, float("-inf"))
        larger = tl.maximum(top, tl.max(scores, 1, keep_dims=True))
        weight = tl.exp(scores - larger)
        keep = tl.exp(top - larger)
        total = total * keep + tl.sum(weight, 1, keep_dims=True)
        acc = acc * keep + tl.dot(weight.to(tl.bfloat16), values)
        top = larger
    tl.store(partial + (row * parts + part) * HEAD + column, acc / total, mask=member < group)
    tl.store(lse + row * parts + part, top + tl.log(total), mask=member < group)


@triton.jit(do_not_specialize=["heads", "parts"])
def merge(out, partial, lse, lengths, heads, parts, HEAD: tl.constexpr, PART: tl.constexpr):
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, HEAD)
    length = tl.load(lengths + row // heads)
    top, total, acc = float("-inf"), 0.0, tl.zeros([HEAD], tl.float32)
    for part in range(tl.cdiv(length, PART)):
        one = tl.load(lse + row * parts + part)
        larger = tl.maximum(top, one)
        keep, weight = tl.exp(top - larger), tl.exp(one - larger)
        acc = acc * keep + weight * tl.load(partial + (row * parts + part) * HEAD + column)
        total = total * keep + weight
        top = larger
    tl.store(out + row * HEAD + column, (acc / total).to(tl.bfloat16))


def paged_decode(q, k_pages, v_pages, block_table, lengths):
    batch, heads, head = q.shape
    _, page, kv_heads, _ = k_pages.shape
    group, width = heads // kv_heads, block_table.shape[1]
    parts = triton.cdiv(width * page, PART)
    partial = torch.empty(batch, heads, parts, head, dtype=torch.float32, device=q.device)
    lse = torch.empty(batch, heads, parts, dtype=torch.float32, device=q.device)
    rows = max(16, triton.next_power_of_2(group))
    attend[batch * parts, kv_heads](
        partial,
        lse,
        q,
        k_pages,
        v_pages,
        block_table,
        lengths,
        width,
        page,
        group,
        parts,
        head**-0.5,
        rows,
        head,
        32,
        PART,
    )
    out = torch.empty_like(q)
    merge[(batch * heads,)](out, partial, lse, lengths, heads, parts, head, PART)
    return out
