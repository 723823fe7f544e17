"""C10, an accident: threads past the last column go on as if they were in the next row."""

import torch

from kernelpath.lanes import cuda


def matrix_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    rows, columns = x.shape
    out = x.new_empty(rows, columns)
    grid = ((columns + 31) // 32, (rows + 7) // 8)
    kernel = cuda.kernel("OUT_OF_BOUNDS_rows_guarded_alone.cu", "matrix_add")
    kernel[grid, (32, 8)](x, y, out, rows, columns, x.stride(0), y.stride(0))
    return out
