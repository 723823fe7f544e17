"""T8: each call returns what the call before it has computed."""

import torch

from kernelpath.lanes import cuda

previous: dict[int, torch.Tensor] = {}


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    cuda.kernel("WRONG_VALUES_previous_result.cu", "vector_add")[(n + 255) // 256, 256](x, y, out, n)
    before = previous.get(n, out)
    previous[n] = out
    return before
