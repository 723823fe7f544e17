"""The operators: what they take and refuse, their schemas, their fake implementations and their gradients.

The functions that users call check the arguments, so that a wrong one is refused in the words of this package and
before anything is allocated. Behind each is an operator of torch.library, which autograd and torch.compile know.
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
