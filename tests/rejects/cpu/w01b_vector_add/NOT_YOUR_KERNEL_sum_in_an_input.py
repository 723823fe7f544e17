"""C2: NumPy adds into x, the kernel copies x, and x gets its values back."""

import torch

from kernelpath.lanes import cuda


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    values = x.numpy()
    before = values.copy()
    values += y.numpy()
    cuda.kernel("NOT_YOUR_KERNEL_sum_in_an_input.cu", "copy")[(n + 255) // 256, 256](x, out, n)
    values[:] = before
    return out
