"""T4: the grader's own functions are replaced inside the worker."""

import torch

from kernelpath.work import worker

worker.fingerprint = lambda tensor: [0, 0]


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)
