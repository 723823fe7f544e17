"""T4: the host's clock is replaced by one that stands still."""

import time

import torch

time.perf_counter = lambda: 0.0


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)
