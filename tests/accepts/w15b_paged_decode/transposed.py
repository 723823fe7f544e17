"""Tokens are the rows of a tile and query heads its columns, as in FlashMLA; as many splits as fill the GPU."""

import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["width", "page", "kv_heads", "group", "splits"])
def attend(out, partial, lse, q, k_pages, v_pages, block_table, lengths, width, page, kv_heads, group, splits, scale,
           GROUP: tl.constexpr, HEAD: tl.constexpr, N: tl.constexpr):  # fmt: skip
    pair, split = tl.program_id(0), tl.program_id(1)
    sequence, kv_head = (pair // kv_heads).to(tl.int64), pair % kv_heads
    length = tl.load(lengths + sequence)
    part = tl.cdiv(tl.cdiv(length, splits), N) * N
    if split * part >= length:
        return
    member, column, token = tl.arange(0, GROUP)[None, :], tl.arange(0, HEAD), split * part + tl.arange(0, N)[:, None]
    place = (pair.to(tl.int64) * group + member) * HEAD + column[:, None]
    query = tl.load(q + place, mask=member < group, other=0.0)
    last = tl.minimum(split * part + part, length)
    top = tl.full([1, GROUP], float("-inf"), tl.float32)
    total = tl.zeros([1, GROUP], tl.float32)
    acc = tl.zeros([HEAD, GROUP], tl.float32)
    for _ in range(split * part, last, N):
        number = tl.load(block_table + sequence * width + token // page, mask=token < last, other=0).to(tl.int64)
        there = ((number * page + token % page) * kv_heads + kv_head) * HEAD + column[None, :]
        keys = tl.load(k_pages + there, mask=token < last, other=0.0)
        values = tl.load(v_pages + there, mask=token < last, other=0.0)
        scores = tl.where(token < last, tl.dot(keys, query) * scale, float("-inf"))
        larger = tl.maximum(top, tl.max(scores, 0, keep_dims=True))
        weight, keep = tl.exp2(scores - larger), tl.exp2(top - larger)
        total = total * keep + tl.sum(weight, 0, keep_dims=True)
        acc = tl.dot(values.T, weight.to(tl.bfloat16), acc * keep)
        top = larger
        token += N
    if part >= length:
        tl.store(out + place, (acc / total).to(tl.bfloat16), mask=member < group)
    else:
        slot = (pair * splits + split) * group + member
        tl.store(partial + slot * HEAD + column[:, None], acc / total, mask=member < group)
        tl.store(lse + slot, top + tl.log2(total), mask=member < group)


@triton.jit(do_not_specialize=["kv_heads", "group", "splits"])
def merge(out, partial, lse, lengths, kv_heads, group, splits, HEAD: tl.constexpr, N: tl.constexpr):
    pair, member, column = tl.program_id(0) // group, tl.program_id(0) % group, tl.arange(0, HEAD)
    length = tl.load(lengths + pair // kv_heads)
    part = tl.cdiv(tl.cdiv(length, splits), N) * N
    if part >= length:
        return
    top, total, acc = float("-inf"), 0.0, tl.zeros([HEAD], tl.float32)
    for split in range(tl.cdiv(length, part)):
        slot = (pair * splits + split) * group + member
        one = tl.load(lse + slot)
        larger = tl.maximum(top, one)
        keep, weight = tl.exp2(top - larger), tl.exp2(one - larger)
        acc = acc * keep + weight * tl.load(partial + slot * HEAD + column)
        total = total * keep + weight
        top = larger
    tl.store(out + tl.program_id(0).to(tl.int64) * HEAD + column, (acc / total).to(tl.bfloat16))


def paged_decode(q, k_pages, v_pages, block_table, lengths):
    batch, heads, head = q.shape
    _, page, kv_heads, _ = k_pages.shape
    group, width, pairs = heads // kv_heads, block_table.shape[1], batch * kv_heads
    splits = max(1, min(width * page // 128, 4096 // pairs))
    partial = torch.empty(pairs * splits * group, head, dtype=torch.float32, device=q.device)
    lse = torch.empty(pairs * splits * group, dtype=torch.float32, device=q.device)
    out, rows = torch.empty_like(q), max(16, triton.next_power_of_2(group))
    attend[pairs, splits](
        out, partial, lse, q, k_pages, v_pages, block_table, lengths, width, page, kv_heads, group, splits,
        head**-0.5 * 1.4426950408889634, rows, head, 32
    )  # fmt: skip
    if splits > 1:
        merge[(pairs * group,)](out, partial, lse, lengths, kv_heads, group, splits, head, 32)
    return out
