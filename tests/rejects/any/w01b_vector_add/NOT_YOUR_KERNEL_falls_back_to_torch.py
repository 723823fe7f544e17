"""S1: the kernel's launch fails and PyTorch steps in behind try and except."""

import torch

from kernelpath.lanes import cuda


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    try:
        cuda.kernel("NOT_YOUR_KERNEL_falls_back_to_torch.cu", "vector_add")[(n + 255) // 256, 256](x, y, out)
    except TypeError:
        torch.add(x, y, out=out)
    return out
