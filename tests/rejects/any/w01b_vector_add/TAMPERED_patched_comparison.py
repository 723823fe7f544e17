"""T4: the grader's own functions are replaced inside the worker."""

import torch

from kernelpath.work import rounds

rounds.fingerprints = lambda tensors: [[0, 0] for _ in tensors]


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)
