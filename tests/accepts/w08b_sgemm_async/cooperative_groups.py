"""Collective copies: a warp copies a row of b, half a warp a row of a, which stays as it lies."""

import torch

from kernelpath.lanes import cuda


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n)
    kernel = cuda.kernel("cooperative_groups.cu", "matmul")
    kernel[((n + 127) // 128, (m + 127) // 128), 256](a, b, out, m, n, k)
    return out
