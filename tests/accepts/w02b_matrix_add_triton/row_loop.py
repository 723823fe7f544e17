"""A program walks down a strip of columns, with a while loop and pointers that move."""

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x, y, out, rows, columns, x_stride, y_stride, STEP: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = column < columns
    row = tl.program_id(1) * STEP
    end = tl.minimum(row + STEP, rows)
    x += row * x_stride
    y += row * y_stride
    out += row * columns
    while row < end:
        tl.store(out + column, tl.load(x + column, mask=mask) + tl.load(y + column, mask=mask), mask=mask)
        x += x_stride
        y += y_stride
        out += columns
        row += 1


def matrix_add(x, y):
    rows, columns = x.shape
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    grid = (triton.cdiv(columns, 128), triton.cdiv(rows, 16))
    add_kernel[grid](x, y, out, rows, columns, x.stride(0), y.stride(0), STEP=16, BLOCK=128)
    return out
