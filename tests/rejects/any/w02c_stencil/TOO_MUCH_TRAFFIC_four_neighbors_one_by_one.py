"""An accident that costs time alone: lanes read shared memory four words apart, and four of them meet in a bank."""

import torch

from kernelpath.lanes import cuda


def stencil(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    cuda.kernel("TOO_MUCH_TRAFFIC_four_neighbors_one_by_one.cu", "stencil")[(n + 1023) // 1024, 256](x, out, n)
    return out
