"""A thread an element."""

import torch

from kernelpath.lanes import cuda


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    cuda.kernel("plain.cu", "vector_add")[(n + 255) // 256, 256](x, y, out, n)
    return out
