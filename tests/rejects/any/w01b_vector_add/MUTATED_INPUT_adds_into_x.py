"""C2, an accident: x is overwritten on the way; a reference computed afterwards would agree (KernelBench)."""

import torch

from kernelpath.lanes import cuda


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    cuda.kernel("MUTATED_INPUT_adds_into_x.cu", "vector_add")[(n + 255) // 256, 256](x, y, out, n)
    return out
