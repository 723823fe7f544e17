"""In CUTLASS's terms: shapes as types, predicated iterators, fragments in registers two deep, two stages of tiles."""

import torch

from kernelpath.lanes import cuda


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n)
    cuda.kernel("cutlass_like.cu", "Gemm")[((n + 127) // 128, (m + 127) // 128), 256](a, b, out, m, n, k)
    return out
