"""An accident that costs time alone: the tile of b is kept by columns, and 32 lanes meet in one bank."""

import torch

from kernelpath.lanes import cuda


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n)
    grid = ((n + 32 - 1) // 32, (m + 32 - 1) // 32)
    cuda.kernel("TOO_MUCH_TRAFFIC_tile_of_b_by_columns.cu", "matmul")[grid, (32, 32)](a, b, out, m, n, k)
    return out
