"""A fault that the machine cannot see: the kernel is well defined and divides by the wrong number."""

import torch

from kernelpath.lanes import cuda

FAULT = {"kernel": "row_means", "kind": "WrongValues", "line": 14}


def test(source: str, device: torch.device) -> None:
    x = torch.randn(5, 100, generator=torch.Generator(device).manual_seed(2), device=device) + 3
    means = torch.empty(5, device=device)
    cuda.kernel(source, "row_means")[5, 32](x, means, 100)
    assert torch.allclose(means.double(), x.double().mean(dim=1), rtol=1e-5)


def run(source: str, device: torch.device) -> torch.Tensor:
    test(source, device)
    return torch.ones(1)
