"""C10, an accident: the guard lets one thread too many through, which no GPU reports."""

import torch

from kernelpath.lanes import cuda


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    cuda.kernel("OUT_OF_BOUNDS_one_past_the_end.cu", "vector_add")[(n + 255) // 256, 256](x, y, out, n)
    return out
