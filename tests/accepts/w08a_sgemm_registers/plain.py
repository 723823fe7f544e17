"""As short as it can be: two groups of four outputs in either direction, loads of one element."""

import torch

from kernelpath.lanes import cuda


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n)
    cuda.kernel("plain.cu", "matmul")[((n + 127) // 128, (m + 127) // 128), 256](a, b, out, m, n, k)
    return out
