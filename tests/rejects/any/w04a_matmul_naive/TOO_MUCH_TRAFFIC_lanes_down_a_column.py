"""An accident that costs time alone: threadIdx.x runs down the rows of a and of out."""

import torch

from kernelpath.lanes import cuda


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n)
    grid = ((m + 31) // 32, (n + 7) // 8)
    cuda.kernel("TOO_MUCH_TRAFFIC_lanes_down_a_column.cu", "matmul")[grid, (32, 8)](a, b, out, m, n, k)
    return out
