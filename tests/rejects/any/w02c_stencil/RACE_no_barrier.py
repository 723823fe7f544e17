"""C10, an accident: the tile is read before every warp has written its part."""

import torch

from kernelpath.lanes import cuda


def stencil(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    cuda.kernel("RACE_no_barrier.cu", "stencil")[(n + 255) // 256, 256](x, out, n)
    return out
