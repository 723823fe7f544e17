"""C9, an accident: the sum goes through a buffer that only the first call finds at zero (llm.c #852)."""

import torch

from kernelpath.lanes import cuda

totals = torch.zeros(1 << 20)


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    cuda.kernel("WRONG_VALUES_right_for_the_first_call.cu", "vector_add")[(n + 255) // 256, 256](x, y, totals, out, n)
    return out
