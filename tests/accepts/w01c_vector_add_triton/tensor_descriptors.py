"""Tensor descriptors where addresses allow them, as in Triton's newer tutorials, and pointers where not."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def add_described(x, y, out, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    out.store([start], x.load([start]) + y.load([start]))


@triton.jit
def add_pointed(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask) + tl.load(y + offsets, mask), mask)


def vector_add(x, y):
    out, block = torch.empty_like(x), 1024
    grid = (triton.cdiv(x.numel(), block),)
    if x.numel() % 4 or any(tensor.data_ptr() % 16 for tensor in (x, y, out)):
        add_pointed[grid](x, y, out, x.numel(), block)
    else:
        add_described[grid](*(TensorDescriptor.from_tensor(tensor, [block]) for tensor in (x, y, out)), block)
    return out
