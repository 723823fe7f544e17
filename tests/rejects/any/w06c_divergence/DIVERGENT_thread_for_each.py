"""An accident that costs time alone: a thread for each oscillator, as they come."""

import torch

from kernelpath.lanes import cuda


def oscillate(x: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    kernel = cuda.kernel("DIVERGENT_thread_for_each.cu", "oscillate")
    kernel[(x.numel() + 255) // 256, 256](x, steps, out, x.numel())
    return out
