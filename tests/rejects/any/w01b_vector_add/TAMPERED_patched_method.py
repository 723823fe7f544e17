"""T4: a method of the grader's, not a function, is replaced inside the worker."""

import torch

from kernelpath.work import sandbox

sandbox.Provenance.complaint = lambda *_: None


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)
