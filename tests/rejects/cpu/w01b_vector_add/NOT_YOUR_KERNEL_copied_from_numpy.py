"""S1: NumPy adds, and the kernel copies the sums."""

import torch

from kernelpath.lanes import cuda


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    sums = torch.from_numpy(x.numpy() + y.numpy()).to(x.device)
    cuda.kernel("NOT_YOUR_KERNEL_copied_from_numpy.cu", "copy")[(n + 255) // 256, 256](sums, out, n)
    return out
