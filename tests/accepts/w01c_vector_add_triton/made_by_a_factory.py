"""A kernel made in a function, with names of that function's in it, and an output that begins as zeros."""

import functools

import torch
import triton
import triton.language as tl


@functools.cache
def make(block: int, warps: int):
    @triton.jit
    def kernel(x, y, out, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        tl.store(out + offsets, tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask), mask=mask)

    def launch(x, y, out):
        kernel[(triton.cdiv(x.numel(), block),)](x, y, out, x.numel(), BLOCK=block, num_warps=warps)

    return launch


def vector_add(x, y):
    out = torch.zeros_like(x)
    make(1024 if x.numel() > 2000 else 256, 4)(x, y, out)
    return out
