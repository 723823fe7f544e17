"""The fault of llm.c's fused_residual_forward2: its guard lets one row too many pass."""

import torch

from kernelpath.lanes import cuda

FAULT = {"kernel": "fused_residual_forward2", "kind": "OutOfBounds", "line": 38}


def test(source: str, device: torch.device) -> None:
    rows, columns, threads = 100, 24, 32
    rng = torch.Generator(device).manual_seed(1)
    a, b = torch.randn(2, rows, columns, generator=rng, device=device)
    weight, bias = torch.randn(2, columns, generator=rng, device=device)
    residual, normed = torch.empty_like(a), torch.empty_like(a)
    mean, rstd = torch.empty(2, rows, device=device)
    kernel = cuda.kernel(source, "fused_residual_forward2")
    kernel[-(-rows // threads), threads](residual, normed, mean, rstd, a, b, weight, bias, rows, columns)
    total = (a + b).double()
    expected = torch.nn.functional.layer_norm(total, (columns,), weight.double(), bias.double())
    torch.testing.assert_close(residual.double(), total, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(normed.double(), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(mean.double(), total.mean(dim=1), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(rstd.double(), (total.var(dim=1, correction=0) + 1e-5).rsqrt(), rtol=1e-4, atol=1e-5)


def run(source: str, device: torch.device) -> torch.Tensor:
    test(source, device)
    return torch.ones(1)
