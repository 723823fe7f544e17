"""S1: the host adds the first elements, and hands the sums to a kernel as numbers."""

import torch

from kernelpath.lanes import cuda


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    cuda.kernel("NOT_YOUR_KERNEL_numbers_from_the_host.cu", "vector_add")[(n + 255) // 256, 256](x, y, out, n)
    for i in range(min(n, 10)):
        cuda.kernel("NOT_YOUR_KERNEL_numbers_from_the_host.cu", "put")[1, 1](
            out, float(x.numpy()[i]) + float(y.numpy()[i]), i
        )
    return out
