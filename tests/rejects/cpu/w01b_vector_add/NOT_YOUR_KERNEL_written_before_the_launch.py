"""S1: NumPy writes the output behind PyTorch's back, and then a kernel is launched for show."""

import numpy as np
import torch

from kernelpath.lanes import cuda


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    np.add(x.numpy(), y.numpy(), out=out.numpy())
    cuda.kernel("NOT_YOUR_KERNEL_written_before_the_launch.cu", "nothing")[1, 32](out, x.numel())
    return out
