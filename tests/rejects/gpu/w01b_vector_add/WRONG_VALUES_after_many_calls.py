"""C9: right while it is checked and for the first rounds, then only half of the work is done."""

import torch

from kernelpath.lanes import cuda

calls = 0


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    global calls
    calls += 1
    out = torch.empty_like(x)
    n = x.numel() if calls < 20 else x.numel() // 2
    cuda.kernel("WRONG_VALUES_after_many_calls.cu", "vector_add")[(n + 255) // 256, 256](x, y, out, n)
    return out
