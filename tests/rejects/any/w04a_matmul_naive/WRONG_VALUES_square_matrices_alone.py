"""An accident: every row stride is taken to be n."""

import torch

from kernelpath.lanes import cuda


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n)
    grid = ((n + 31) // 32, (m + 7) // 8)
    cuda.kernel("WRONG_VALUES_square_matrices_alone.cu", "matmul")[grid, (32, 8)](a, b, out, m, n, k)
    return out
