"""H2, an accident: the entry takes other arguments than the exercise gives."""

import torch


def vector_add(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)
