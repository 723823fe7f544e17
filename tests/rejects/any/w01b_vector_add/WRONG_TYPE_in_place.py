"""C2, an accident: x takes the sum and is returned."""

import torch

from kernelpath.lanes import cuda


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    n = x.numel()
    cuda.kernel("WRONG_TYPE_in_place.cu", "vector_add")[(n + 255) // 256, 256](x, y, n)
    return x
