"""Like torch.compile's code: a maximum and a sum for each lane of a loop, which tl.reduce merges at its end."""

import torch
import triton
import triton.language as tl


@triton.jit
def combine(m0, s0, m1, s1):
    m = tl.maximum(m0, m1)
    return m, s0 * tl.exp(m0 - m) + s1 * tl.exp(m1 - m)


@triton.jit(do_not_specialize=["xnumel", "r0_numel", "ks0"])
def triton_red_fused_cross_entropy(
    in_ptr0, in_ptr1, in_ptr2, out_ptr0, out_ptr1, ks0, xnumel, r0_numel, BACKWARD: tl.constexpr, R0_BLOCK: tl.constexpr
):
    x0 = tl.program_id(0).to(tl.int64)
    r0_base = tl.arange(0, R0_BLOCK)
    _max = tl.full([R0_BLOCK], -3.4e38, tl.float32)
    _sum = tl.zeros([R0_BLOCK], tl.float32)
    for r0_offset in range(0, r0_numel, R0_BLOCK):
        r0_mask = r0_offset + r0_base < r0_numel
        tmp0 = tl.load(
            in_ptr0 + (r0_offset + r0_base + r0_numel * x0), r0_mask, eviction_policy="evict_last", other=0.0
        )
        _next = tl.where(r0_mask, tl.maximum(_max, tmp0.to(tl.float32)), _max)
        _sum = tl.where(r0_mask, _sum * tl.exp(_max - _next) + tl.exp(tmp0.to(tl.float32) - _next), _sum)
        _max = _next
    tmp3, tmp4 = tl.reduce((_max, _sum), 0, combine)
    tmp5 = tl.load(in_ptr1 + x0)
    tmp6 = (tmp5 != ks0) & (tmp5 >= 0) & (tmp5 < r0_numel)
    tmp7 = tl.load(in_ptr0 + (tmp5 + r0_numel * x0), tmp6, other=0.0).to(tl.float32)
    tmp8 = tl.where(tmp5 == ks0, 0.0, float("nan"))
    tl.store(out_ptr0 + x0, tl.where(tmp6, tl.log(tmp4) - (tmp7 - tmp3), tmp8))
    if BACKWARD:
        tmp9 = tl.where(tmp6, 1.0 / tl.load(in_ptr2).to(tl.float32), tmp8)
        for r0_offset in range(0, r0_numel, R0_BLOCK):
            r0_index = r0_offset + r0_base
            r0_mask = r0_index < r0_numel
            tmp10 = tl.load(in_ptr0 + (r0_index + r0_numel * x0), r0_mask, eviction_policy="evict_first", other=0.0)
            tmp11 = tl.exp(tmp10.to(tl.float32) - tmp3) / tmp4
            tmp12 = tl.where(r0_index == tmp5, tmp11 - 1.0, tmp11) * tmp9
            tl.store(out_ptr1 + (r0_index + r0_numel * x0), tmp12, r0_mask)


@triton.jit(do_not_specialize=["xnumel", "ks0"])
def triton_red_fused_sum(in_ptr0, out_ptr0, ks0, xnumel, R0_BLOCK: tl.constexpr):
    _tmp = tl.zeros([R0_BLOCK], tl.int64)
    for r0_offset in range(0, xnumel, R0_BLOCK):
        r0_mask = r0_offset + tl.arange(0, R0_BLOCK) < xnumel
        tmp0 = tl.load(in_ptr0 + r0_offset + tl.arange(0, R0_BLOCK), r0_mask, other=0)
        _tmp += (r0_mask & (tmp0 != ks0)).to(tl.int64)
    tl.store(out_ptr0, tl.sum(_tmp, 0))


def cross_entropy(logits, labels, ignore_index, gradient):
    rows, classes = logits.shape
    loss = torch.empty((rows,), dtype=torch.float32, device=logits.device)
    buf1 = torch.empty((), dtype=torch.int64, device=logits.device)
    buf2 = torch.empty_like(logits) if gradient else logits
    if gradient:
        triton_red_fused_sum[(1,)](labels, buf1, ignore_index, rows, 1024)
    triton_red_fused_cross_entropy[(rows,)](
        logits, labels, buf1, loss, buf2, ignore_index, rows, classes, gradient, 2048, num_warps=8
    )
    return (loss, buf2) if gradient else loss
