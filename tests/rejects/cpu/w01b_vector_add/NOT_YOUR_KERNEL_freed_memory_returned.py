"""C1: the right sum is freed, in the hope that the output gets the same memory (Sakana, mojo-gpu-puzzles #105)."""

import torch

from kernelpath.lanes import cuda


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    sum = torch.empty_like(x)
    n = x.numel()
    cuda.kernel("NOT_YOUR_KERNEL_freed_memory_returned.cu", "vector_add")[(n + 255) // 256, 256](x, y, sum, n)
    del sum
    return torch.empty_like(x)
