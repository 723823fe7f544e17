"""A tile in dynamic shared memory with the halo all around it, filled by one loop; the radius is a template's."""

import torch

from kernelpath.lanes import cuda

RADIUS, THREADS, PER_THREAD = 8, 128, 4
TILE = THREADS * PER_THREAD


def stencil(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    kernel = cuda.kernel("dynamic_tile.cu", f"smooth<{RADIUS}, {PER_THREAD}>")
    kernel[-(-x.numel() // TILE), THREADS, 4 * (TILE + 2 * RADIUS)](x, out, x.numel())
    return out
