"""An accident that costs time alone: each thread loads all 17 values from global memory."""

import torch

from kernelpath.lanes import cuda


def stencil(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    cuda.kernel("TOO_MUCH_TRAFFIC_global_memory.cu", "stencil")[(n + 255) // 256, 256](x, out, n)
    return out
