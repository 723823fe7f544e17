"""An accident: the row stride is taken to be the number of columns."""

import torch

from kernelpath.lanes import cuda


def matrix_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    rows, columns = x.shape
    out = x.new_empty(rows, columns)
    grid = ((columns + 31) // 32, (rows + 7) // 8)
    kernel = cuda.kernel("WRONG_VALUES_stride_of_a_matrix_without_gaps.cu", "matrix_add")
    kernel[grid, (32, 8)](x, y, out, rows, columns, x.stride(0), y.stride(0))
    return out
