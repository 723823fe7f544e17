"""Numbers that follow from addresses: a hint to the compiler, and the elements before the first aligned one."""

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x, y, out, n, head, ALIGNED: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK) + head - BLOCK
    if ALIGNED:
        offsets = tl.multiple_of(offsets, 4)
    mask = (offsets >= 0) & (offsets < n)
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask), mask=mask)


def vector_add(x, y):
    out = torch.empty_like(x)
    head = -x.data_ptr() // 4 % 4
    aligned = x.data_ptr() % 16 == y.data_ptr() % 16 == out.data_ptr() % 16 == 0
    add_kernel[(triton.cdiv(x.numel(), 512) + 1,)](x, y, out, x.numel(), head, aligned, 512)
    return out
