"""S1, an accident: the entry lets cuBLAS multiply."""

import torch


def wgmma_gemm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b.T
