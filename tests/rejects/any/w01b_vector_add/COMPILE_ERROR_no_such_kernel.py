"""H2, an accident: the launch names a kernel that the file does not define."""

import torch

from kernelpath.lanes import cuda


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    cuda.kernel("COMPILE_ERROR_no_such_kernel.cu", "vector_add")[(n + 255) // 256, 256](x, y, out, n)
    return out
