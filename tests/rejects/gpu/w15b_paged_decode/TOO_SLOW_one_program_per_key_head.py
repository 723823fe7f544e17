"""An accident that costs time alone: one program per sequence and key head; all wait for the longest sequence."""

import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["width", "page", "group"])
def attend(out, q, k_pages, v_pages, block_table, lengths, width, page, group, scale, GROUP: tl.constexpr,
           HEAD: tl.constexpr, N: tl.constexpr):  # fmt: skip
    sequence, kv_head, kv_heads = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    length = tl.load(lengths + sequence)
    member, column = tl.arange(0, GROUP)[:, None], tl.arange(0, HEAD)[None, :]
    place = ((sequence * kv_heads + kv_head) * group + member) * HEAD + column
    query = tl.load(q + place, mask=member < group, other=0.0)
    top = tl.full([GROUP, 1], float("-inf"), tl.float32)
    total = tl.zeros([GROUP, 1], tl.float32)
    acc = tl.zeros([GROUP, HEAD], tl.float32)
    for start in range(0, length, N):
        token = start + tl.arange(0, N)
        number = tl.load(block_table + sequence * width + token // page, mask=token < length, other=0)
        row = number.to(tl.int64) * page + token % page
        there = (row * kv_heads + kv_head)[:, None] * HEAD + column
        keys = tl.load(k_pages + there, mask=token[:, None] < length, other=0.0)
        values = tl.load(v_pages + there, mask=token[:, None] < length, other=0.0)
        scores = tl.where(token[None, :] < length, tl.dot(query, keys.T) * scale, float("-inf"))
        larger = tl.maximum(top, tl.max(scores, 1, keep_dims=True))
        weight = tl.exp(scores - larger)
        keep = tl.exp(top - larger)
        total = total * keep + tl.sum(weight, 1, keep_dims=True)
        acc = tl.dot(weight.to(tl.bfloat16), values, acc * keep)
        top = larger
    tl.store(out + place, (acc / total).to(tl.bfloat16), mask=member < group)


def paged_decode(q, k_pages, v_pages, block_table, lengths):
    batch, heads, head = q.shape
    _, page, kv_heads, _ = k_pages.shape
    out, group = torch.empty_like(q), heads // kv_heads
    rows = max(16, triton.next_power_of_2(group))
    attend[batch, kv_heads](
        out, q, k_pages, v_pages, block_table, lengths, block_table.shape[1], page, group, head**-0.5, rows, head, 32
    )
    return out
