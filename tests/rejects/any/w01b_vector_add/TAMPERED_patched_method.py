"""T4: a method of the grader's, not a function, is replaced inside the worker."""

import torch

from kernelpath.work import watch

watch.Guards.broken = lambda *_: ""


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)
