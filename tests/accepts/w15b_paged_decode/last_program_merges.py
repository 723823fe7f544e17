"""Eight splits of each sequence, some of them empty, and one kernel: the program that ends last merges all eight."""

import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["width", "shift", "kv_heads", "group"])
def attend(out, partial, tops, totals, arrived, q, k_pages, v_pages, block_table, lengths, width, shift, kv_heads,
           group, scale, GROUP: tl.constexpr, HEAD: tl.constexpr, N: tl.constexpr, SPLITS: tl.constexpr):  # fmt: skip
    pair, split = tl.program_id(0) // SPLITS, tl.program_id(0) % SPLITS
    sequence, kv_head = (pair // kv_heads).to(tl.int64), pair % kv_heads
    length = tl.load(lengths + sequence)
    each = tl.cdiv(tl.cdiv(length, SPLITS), N) * N
    member, column, token_of = tl.arange(0, GROUP), tl.arange(0, HEAD), tl.arange(0, N)
    inside = member < group
    place = (pair.to(tl.int64) * group + member)[:, None] * HEAD + column
    query = tl.load(q + place, mask=inside[:, None], other=0.0)
    top = tl.full([GROUP], float("-inf"), tl.float32)
    total = tl.zeros([GROUP], tl.float32)
    acc = tl.zeros([GROUP, HEAD], tl.float32)
    last = tl.minimum(split * each + each, length)
    for start in range(split * each, last, N):
        token = start + token_of
        page = tl.load(block_table + sequence * width + (token >> shift), mask=token < last, other=0).to(tl.int64)
        row = (page << shift) + (token & ((1 << shift) - 1))
        there = (row * kv_heads + kv_head)[:, None] * HEAD + column
        keys = tl.load(k_pages + there, mask=token[:, None] < last, other=0.0)
        values = tl.load(v_pages + there, mask=token[:, None] < last, other=0.0)
        scores = tl.where(token < last, tl.dot(query, keys.T) * scale, float("-inf"))
        larger = tl.maximum(top, tl.max(scores, 1))
        weight, keep = tl.exp(scores - larger[:, None]), tl.exp(top - larger)
        total = total * keep + tl.sum(weight, 1)
        acc = tl.dot(weight.to(tl.bfloat16), values, acc * keep[:, None])
        top = larger
    slot = (pair * SPLITS + split) * group
    tl.store(partial + (slot + member)[:, None] * HEAD + column, acc, mask=inside[:, None])
    tl.store(tops + slot + member, top, mask=inside)
    tl.store(totals + slot + member, total, mask=inside)
    tl.debug_barrier()
    if tl.atomic_add(arrived + pair, 1, sem="acq_rel") == SPLITS - 1:
        best = tl.full([GROUP], float("-inf"), tl.float32)
        for i in range(SPLITS):
            best = tl.maximum(best, tl.load(tops + (pair * SPLITS + i) * group + member, mask=inside, other=0.0))
        acc *= 0
        total *= 0
        for i in range(SPLITS):
            there = (pair * SPLITS + i) * group + member
            weight = tl.exp(tl.load(tops + there, mask=inside, other=0.0) - best)
            total += weight * tl.load(totals + there, mask=inside, other=1.0)
            acc += weight[:, None] * tl.load(partial + there[:, None] * HEAD + column, mask=inside[:, None], other=0.0)
        tl.store(out + place, (acc / total[:, None]).to(tl.bfloat16), mask=inside[:, None])


def paged_decode(q, k_pages, v_pages, block_table, lengths):
    batch, heads, head = q.shape
    _, page, kv_heads, _ = k_pages.shape
    out, rows = torch.empty_like(q), batch * heads * 8
    partial = torch.empty(rows, head, dtype=torch.float32, device=q.device)
    tops, totals = (torch.empty(rows, dtype=torch.float32, device=q.device) for _ in range(2))
    arrived = torch.zeros(batch * kv_heads, dtype=torch.int32, device=q.device)
    group = heads // kv_heads
    attend[(batch * kv_heads * 8,)](
        out, partial, tops, totals, arrived, q, k_pages, v_pages, block_table, lengths, block_table.shape[1],
        page.bit_length() - 1, kv_heads, group, head**-0.5, max(16, triton.next_power_of_2(group)), head, 32, 8
    )  # fmt: skip
    return out
