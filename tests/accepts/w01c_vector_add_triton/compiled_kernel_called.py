"""The compiled kernel kept from the first launch and called itself, with a grid."""

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x, y, out, n: tl.int64, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask), mask=mask)


def vector_add(x, y):
    out, n = torch.empty_like(x), x.numel()
    compiled = add_kernel.warmup(x, y, out, n, 1024, grid=(1,))
    compiled[(triton.cdiv(n, 1024), 1, 1)](x, y, out, n, 1024)
    return out
