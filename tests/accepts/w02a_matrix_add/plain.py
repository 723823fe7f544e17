"""A thread an element, a warp along a row."""

import torch

from kernelpath.lanes import cuda


def matrix_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    rows, columns = x.shape
    out = x.new_empty(rows, columns)
    grid = ((columns + 31) // 32, (rows + 7) // 8)
    kernel = cuda.kernel("plain.cu", "matrix_add")
    kernel[grid, (32, 8)](x, y, out, rows, columns, x.stride(0), y.stride(0))
    return out
