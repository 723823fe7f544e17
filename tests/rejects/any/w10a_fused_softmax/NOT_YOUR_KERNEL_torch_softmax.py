"""S1, an accident: the entry lets PyTorch do the work."""

import torch


def fused_softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=1)
