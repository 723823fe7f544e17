"""Triton's tutorial on libdevice: an external function, here a fused multiply-add, which rounds a sum once."""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    a, b = tl.load(x + offsets, mask=mask), tl.load(y + offsets, mask=mask)
    tl.store(out + offsets, libdevice.fma(a, tl.full(a.shape, 1.0, tl.float32), b), mask=mask)


def vector_add(x, y):
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
    return out
