"""C10, an accident: loads are not guarded, as if every size were a multiple of the tile."""

import torch

from kernelpath.lanes import cuda


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n)
    grid = ((n + 32 - 1) // 32, (m + 32 - 1) // 32)
    cuda.kernel("OUT_OF_BOUNDS_whole_tiles_alone.cu", "matmul")[grid, (32, 32)](a, b, out, m, n, k)
    return out
