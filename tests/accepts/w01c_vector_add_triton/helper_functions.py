"""Small @triton.jit helpers, a constant of the module, and tuples returned from a helper."""

import torch
import triton
import triton.language as tl

BLOCK = tl.constexpr(1024)


@triton.jit
def tile(n, block: tl.constexpr):
    offsets = tl.program_id(0) * block + tl.arange(0, block)
    return offsets, offsets < n


@triton.jit
def add(a, b):
    return a + b


@triton.jit
def add_kernel(x, y, out, n):
    offsets, inside = tile(n, BLOCK)
    tl.store(out + offsets, add(tl.load(x + offsets, inside), tl.load(y + offsets, inside)), inside)


def vector_add(x, y):
    out = torch.empty_like(x)
    add_kernel[triton.cdiv(x.numel(), BLOCK.value),](x, y, out, x.numel())
    return out
