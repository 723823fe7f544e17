"""Weights as a tensor of torch, sent by the host and read through the read-only cache."""

import torch

from kernelpath.lanes import cuda

RADIUS = 8


def stencil(x: torch.Tensor) -> torch.Tensor:
    distance = torch.arange(-RADIUS, RADIUS + 1, device=x.device).abs()
    weights = (RADIUS + 1 - distance).to(x.dtype) / (RADIUS + 1) ** 2
    out = torch.empty_like(x)
    cuda.kernel("weights_from_torch.cu", "convolve_1d")[(x.numel() + 511) // 512, 512](x, weights, out, x.numel())
    return out
