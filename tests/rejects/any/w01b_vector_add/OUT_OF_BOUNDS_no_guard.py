"""C10, an accident: the last block reaches past the end of every vector (mojo-gpu-puzzles #200)."""

import torch

from kernelpath.lanes import cuda


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    cuda.kernel("OUT_OF_BOUNDS_no_guard.cu", "vector_add")[(n + 255) // 256, 256](x, y, out, n)
    return out
