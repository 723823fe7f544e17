"""S1, an accident: the entry lets PyTorch do the work."""

import torch


def tma_copy(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().clone()
