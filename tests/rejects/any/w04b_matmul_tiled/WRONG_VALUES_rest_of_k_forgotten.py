"""An accident: the loop makes whole steps along k, and what is left of it is never added."""

import torch

from kernelpath.lanes import cuda


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n)
    grid = ((n + 32 - 1) // 32, (m + 32 - 1) // 32)
    cuda.kernel("WRONG_VALUES_rest_of_k_forgotten.cu", "matmul")[grid, (32, 32)](a, b, out, m, n, k)
    return out
