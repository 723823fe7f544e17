"""A counting sort as a textbook has it: one thread adds up, and each barrier is where it is needed."""

import torch

from kernelpath.lanes import cuda


def oscillate(x: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    cuda.kernel("plain.cu", "oscillate")[(n + 1023) // 1024, 256](x, steps, out, n)
    return out
