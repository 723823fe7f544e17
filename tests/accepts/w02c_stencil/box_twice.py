"""The triangle as two boxes of nine one after the other, the first one's result in shared memory too."""

import torch

from kernelpath.lanes import cuda


def stencil(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    cuda.kernel("box_twice.cu", "box_twice<256>")[1 + (x.numel() - 1) // 256, 256](x, out, x.numel())
    return out
