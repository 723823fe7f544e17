"""C7: the sum is taken in half precision and called float32 (several graders, tolerances of 1e-2)."""

import torch

from kernelpath.lanes import cuda


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    cuda.kernel("WRONG_VALUES_half_precision_inside.cu", "vector_add")[(n + 255) // 256, 256](x, y, out, n)
    return out
