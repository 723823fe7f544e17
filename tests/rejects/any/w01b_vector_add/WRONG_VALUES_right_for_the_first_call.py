"""C9, an accident: the sum goes through a buffer that only the first call finds at zero (llm.c #852)."""

from functools import cache

import torch

from kernelpath.lanes import cuda


@cache
def totals(device: torch.device) -> torch.Tensor:
    return torch.zeros(1 << 20, device=device)


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    add = cuda.kernel("WRONG_VALUES_right_for_the_first_call.cu", "vector_add")
    add[(n + 255) // 256, 256](x, y, totals(x.device), out, n)
    return out
