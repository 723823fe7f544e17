"""C2, an accident: x.t() moves nothing; it is the input's memory under other strides."""

import torch


def transpose(x: torch.Tensor) -> torch.Tensor:
    return x.t()
