"""An accident: the launch is written, the kernel is still the stub's."""

import torch

from kernelpath.lanes import cuda


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n)
    grid = ((n + 31) // 32, (m + 7) // 8)
    cuda.kernel("NOT_STARTED_kernel_of_the_stub.cu", "matmul")[grid, (32, 8)](a, b, out, m, n, k)
    return out
