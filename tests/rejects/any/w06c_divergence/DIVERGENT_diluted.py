"""S3, a thread for each oscillator, and then instructions of whole warps that raise the average and serve nothing."""

import torch

from kernelpath.lanes import cuda


def oscillate(x: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    kernel = cuda.kernel("DIVERGENT_diluted.cu", "oscillate")
    kernel[(x.numel() + 255) // 256, 256](x, steps, out, x.numel())
    return out
