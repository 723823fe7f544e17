"""A tree in shared memory, sums of blocks in memory of the module, and the last block adds them."""

import torch

from kernelpath.lanes import cuda


def vector_sum(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(1, device=x.device)
    n = x.numel()
    cuda.kernel("plain.cu", "vector_sum")[min((n + 255) // 256, 1024), 256](x, out, n)
    return out
