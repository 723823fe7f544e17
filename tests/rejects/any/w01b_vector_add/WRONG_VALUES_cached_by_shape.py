"""T7, an accident: the result is kept by the size of its inputs, as if they were always the same."""

import torch

from kernelpath.lanes import cuda

results: dict[int, torch.Tensor] = {}


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    n = x.numel()
    new = n not in results
    out = results.setdefault(n, torch.empty_like(x))
    cuda.kernel("WRONG_VALUES_cached_by_shape.cu", "vector_add")[(n + 255) // 256, 256](x, y, out, n if new else 0)
    return out
