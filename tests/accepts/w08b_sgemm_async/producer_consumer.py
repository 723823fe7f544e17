"""libcu++: a pipeline of the block's scope whose producers copy and whose consumers multiply."""

import torch

from kernelpath.lanes import cuda

STAGE = 16 * (64 + 4 + 64) * 4


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n)
    grid = ((n + 63) // 64, (m + 63) // 64)
    cuda.kernel("producer_consumer.cu", "matmul")[grid, 128, 3 * STAGE](a, b, out, m, n, k)
    return out
