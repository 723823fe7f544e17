"""Both inputs staged in shared memory by asynchronous copies of four bytes, two stages in flight."""

import torch

from kernelpath.lanes import cuda


def vector_add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = torch.empty_like(a)
    cuda.kernel("staged_copies.cu", "staged_add<128, 2>")[max(1, a.numel() // 1024), 128](a, b, c, a.numel())
    return c
