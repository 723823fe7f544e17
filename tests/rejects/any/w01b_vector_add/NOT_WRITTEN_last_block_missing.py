"""C1, an accident: the number of blocks is rounded down, so the last elements are never written."""

import torch

from kernelpath.lanes import cuda


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    cuda.kernel("NOT_WRITTEN_last_block_missing.cu", "vector_add")[max(n // 256, 1), 256](x, y, out, n)
    return out
