"""An accident: the sum is kept in the output, which begins with whatever the memory held."""

import torch

from kernelpath.lanes import cuda


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n)
    if out.numel():
        cuda.kernel("UNINITIALIZED_sums_in_device_memory.cu", "matmul")[((n + 31) // 32, (m + 7) // 8), (32, 8)](
            a, b, out, m, n, k
        )
    return out
