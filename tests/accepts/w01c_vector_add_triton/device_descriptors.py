"""Descriptors made inside the kernel, with an allocator for the memory that they may need."""

import torch
import triton
import triton.language as tl


class Allocator:
    def __init__(self, device: torch.device) -> None:
        self.device = device

    def __call__(self, size: int, alignment: int, stream: int | None) -> torch.Tensor:
        return torch.empty(size, dtype=torch.int8, device=self.device)


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, ALIGNED: tl.constexpr, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    if ALIGNED:
        x = tl.make_tensor_descriptor(x_ptr, shape=[n], strides=[1], block_shape=[BLOCK])
        y = tl.make_tensor_descriptor(y_ptr, shape=[n], strides=[1], block_shape=[BLOCK])
        out = tl.make_tensor_descriptor(out_ptr, shape=[n], strides=[1], block_shape=[BLOCK])
        out.store([start], x.load([start]) + y.load([start]))
    else:
        at = start + tl.arange(0, BLOCK)
        tl.store(out_ptr + at, tl.load(x_ptr + at, at < n) + tl.load(y_ptr + at, at < n), at < n)


def vector_add(x, y):
    triton.set_allocator(Allocator(x.device))
    out = torch.empty_like(x)
    aligned = (x.data_ptr() | y.data_ptr() | out.data_ptr()) % 16 == 0 and x.numel() % 4 == 0
    add_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), ALIGNED=aligned, BLOCK=1024)
    return out
