"""An accident that costs time alone: the addition is one kernel, and the normalization reads h again in another."""

import torch
import triton
import triton.language as tl


@triton.jit
def add_row(h, x, residual, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    offsets = tl.program_id(0).to(tl.int64) * columns + column
    left = tl.load(x + offsets, mask=column < columns).to(tl.float32)
    right = tl.load(residual + offsets, mask=column < columns).to(tl.float32)
    tl.store(h + offsets, left + right, mask=column < columns)


@triton.jit
def normalize_row(y, h, weight, columns, eps, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    inside = column < columns
    offsets = tl.program_id(0).to(tl.int64) * columns + column
    total = tl.load(h + offsets, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(total * total, axis=0) / columns + eps)
    gain = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + offsets, total * scale * gain, mask=inside)


def add_rmsnorm(x, residual, weight):
    rows, columns = x.shape
    y, h = torch.empty_like(x), torch.empty_like(x)
    add_row[(rows,)](h, x, residual, columns, triton.next_power_of_2(columns))
    normalize_row[(rows,)](y, h, weight, columns, 1e-6, triton.next_power_of_2(columns))
    return y, h
