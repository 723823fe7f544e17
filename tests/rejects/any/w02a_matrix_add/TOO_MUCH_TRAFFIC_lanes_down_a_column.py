"""An accident that costs time alone: threadIdx.x is given to the rows, 32 sectors for 4."""

import torch

from kernelpath.lanes import cuda


def matrix_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    rows, columns = x.shape
    out = x.new_empty(rows, columns)
    grid = ((rows + 31) // 32, (columns + 7) // 8)
    kernel = cuda.kernel("TOO_MUCH_TRAFFIC_lanes_down_a_column.cu", "matrix_add")
    kernel[grid, (32, 8)](x, y, out, rows, columns, x.stride(0), y.stride(0))
    return out
