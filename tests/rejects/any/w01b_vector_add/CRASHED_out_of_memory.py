"""H2, an accident: the entry asks for more memory than there is."""

import torch


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.empty(1 << 42, dtype=torch.float32, device=x.device)
