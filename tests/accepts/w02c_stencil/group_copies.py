"""The tile's middle by cuda::memcpy_async on a barrier, the halo by hand."""

import torch

from kernelpath.lanes import cuda


def stencil(x):
    y = torch.empty_like(x)
    cuda.kernel("group_copies.cu", "stencil<256>")[(x.numel() + 255) // 256, 256](x, y, x.numel())
    return y
