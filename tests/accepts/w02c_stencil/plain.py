"""A tile with its halo in shared memory."""

import torch

from kernelpath.lanes import cuda


def stencil(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    cuda.kernel("plain.cu", "stencil")[(n + 255) // 256, 256](x, out, n)
    return out
