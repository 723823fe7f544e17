"""An accident: right for small matrices, where the grid is small enough for a block."""

import torch

from kernelpath.lanes import cuda


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n)
    grid = ((n + 31) // 32, (m + 7) // 8)
    cuda.kernel("CRASHED_grid_and_block_exchanged.cu", "matmul")[(32, 8), grid](a, b, out, m, n, k)
    return out
