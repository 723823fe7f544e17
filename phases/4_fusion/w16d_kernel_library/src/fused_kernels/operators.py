"""The operators: argument checks, schemas, fake implementations and gradients.

The functions that users call check their arguments, so that a wrong argument is refused with this package's message
before anything is allocated. Each function calls an operator of torch.library, which autograd and torch.compile
support.
"""

import torch
import triton

from fused_kernels import kernels


def add_rmsnorm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    raise NotImplementedError("TODO: check the arguments, then call an operator of torch.library")


def swiglu(gate_up: torch.Tensor) -> torch.Tensor:
    raise NotImplementedError("TODO: check the argument, then call an operator of torch.library")
