"""S1: cuBLAS does the work."""

import torch


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    torch.backends.cuda.matmul.allow_tf32 = False
    return torch.matmul(a, b)
