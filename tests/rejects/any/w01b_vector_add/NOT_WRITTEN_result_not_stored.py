"""C1, an accident: the sum is taken and dropped (KernelBench read an older right answer in the same memory)."""

import torch

from kernelpath.lanes import cuda


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    cuda.kernel("NOT_WRITTEN_result_not_stored.cu", "vector_add")[(n + 255) // 256, 256](x, y, out, n)
    return out
