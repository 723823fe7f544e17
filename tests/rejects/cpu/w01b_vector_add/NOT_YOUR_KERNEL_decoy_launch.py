"""S1: a kernel is launched for show, and NumPy writes the output behind PyTorch's back."""

import numpy as np
import torch

from kernelpath.lanes import cuda


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    cuda.kernel("NOT_YOUR_KERNEL_decoy_launch.cu", "vector_add")[(n + 255) // 256, 256](x, y, out, n)
    np.add(x.numpy(), y.numpy(), out=out.numpy())
    return out
