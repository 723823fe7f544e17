"""An accident: right for small matrices, where the grid is small enough for a block."""

import torch

from kernelpath.lanes import cuda


def matrix_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    rows, columns = x.shape
    out = x.new_empty(rows, columns)
    grid = ((columns + 31) // 32, (rows + 7) // 8)
    kernel = cuda.kernel("CRASHED_grid_and_block_exchanged.cu", "matrix_add")
    kernel[(32, 8), grid](x, y, out, rows, columns, x.stride(0), y.stride(0))
    return out
