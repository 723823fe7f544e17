"""T6: the entry sleeps, so that a grader that repeats for a fixed time repeats less often."""

import time

import torch

from kernelpath.lanes import cuda


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    time.sleep(0.02)
    cuda.kernel("TOO_SLOW_drags_the_clock.cu", "vector_add")[(n + 255) // 256, 256](x, y, out, n)
    return out
