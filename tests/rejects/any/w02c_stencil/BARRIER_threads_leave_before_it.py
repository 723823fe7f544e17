"""C10, an accident: threads past the end return, and the others wait for them."""

import torch

from kernelpath.lanes import cuda


def stencil(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    cuda.kernel("BARRIER_threads_leave_before_it.cu", "stencil")[(n + 255) // 256, 256](x, out, n)
    return out
