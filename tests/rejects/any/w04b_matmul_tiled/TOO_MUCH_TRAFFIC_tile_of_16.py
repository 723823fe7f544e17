"""An accident that costs time alone: a tile of 16 asks for twice the bytes of one of 32."""

import torch

from kernelpath.lanes import cuda


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n)
    grid = ((n + 16 - 1) // 16, (m + 16 - 1) // 16)
    cuda.kernel("TOO_MUCH_TRAFFIC_tile_of_16.cu", "matmul")[grid, (16, 16)](a, b, out, m, n, k)
    return out
