"""S1, an accident: the entry lets PyTorch do the work."""

import torch


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + y
