"""H2, an accident: the loop in the kernel forgets to go on, and the GPU hangs."""

import torch

from kernelpath.lanes import cuda


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    cuda.kernel("TIMED_OUT_endless_kernel.cu", "vector_add")[(n + 255) // 256, 256](x, y, out, n)
    return out
