"""S1: torch sorts, and the kernel follows its order."""

import torch

from kernelpath.lanes import cuda


def oscillate(x: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    order = steps.argsort()
    kernel = cuda.kernel("NOT_YOUR_KERNEL_argsort.cu", "oscillate")
    kernel[(x.numel() + 255) // 256, 256](x, steps, order, out, x.numel())
    return out
