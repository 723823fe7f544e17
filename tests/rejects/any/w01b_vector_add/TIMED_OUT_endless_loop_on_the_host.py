"""H2, an accident: the grid is looked for by a loop that never ends."""

import torch


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    blocks = 1
    while blocks * 256 != x.numel() + 1:
        blocks += 1
    return torch.empty_like(x)
