"""Test values and gradients against float64, strides, and refused arguments."""

import fused_kernels
import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def norm(x, residual, weight, eps=1e-6):
    h = x + residual
    return h * torch.rsqrt(h.square().mean(1, keepdim=True) + eps) * weight, h


def gated(gate_up):
    gate, up = gate_up.chunk(2, dim=1)
    return torch.nn.functional.silu(gate) * up


def held_against_float64(function, formula, inputs, tolerance=1e-4):
    """Compare outputs and gradients with the formula in float64. Upstream gradients differ between elements."""
    leaves = [one.detach().requires_grad_() for one in inputs]
    exact = [one.detach().double().requires_grad_() for one in inputs]
    made, wanted = function(*leaves), formula(*exact)
    made, wanted = (one if isinstance(one, tuple) else (one,) for one in (made, wanted))
    upstream = [torch.randn_like(one) for one in made]
    found = torch.autograd.grad(made, leaves, upstream)
    due = torch.autograd.grad(wanted, exact, [one.double() for one in upstream])
    for one, other in zip((*made, *found), (*wanted, *due), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=tolerance, atol=tolerance)


def test_add_rmsnorm():
    x, residual = torch.randn(2, 7, 94, device=DEVICE)
    held_against_float64(fused_kernels.add_rmsnorm, norm, (x, residual, torch.randn(94, device=DEVICE)))


def test_swiglu():
    held_against_float64(fused_kernels.swiglu, gated, (torch.randn(7, 94, device=DEVICE),))


def test_strides():
    x, residual = torch.randn(2, 94, 7, device=DEVICE).mT
    held_against_float64(fused_kernels.add_rmsnorm, norm, (x, residual, torch.randn(94, device=DEVICE)))
    held_against_float64(fused_kernels.swiglu, gated, (torch.randn(94, 7, device=DEVICE).t(),))


def test_no_rows():
    y, h = fused_kernels.add_rmsnorm(*torch.randn(2, 0, 94, device=DEVICE), torch.randn(94, device=DEVICE))
    assert y.shape == h.shape == (0, 94)


@pytest.mark.parametrize("wrong", ["x", "residual", "weight"])
def test_a_dtype_is_refused(wrong):
    given = dict(zip(("x", "residual"), torch.randn(2, 7, 94, device=DEVICE), strict=True))
    given["weight"] = torch.randn(94, device=DEVICE)
    given[wrong] = given[wrong].half()
    with pytest.raises(TypeError, match=f"^{wrong}"):
        fused_kernels.add_rmsnorm(**given)


def test_a_shape_is_refused():
    x = torch.randn(7, 94, device=DEVICE)
    with pytest.raises(ValueError, match=r"^residual"):
        fused_kernels.add_rmsnorm(x, x[1:], x[0])
    with pytest.raises(ValueError, match=r"^weight"):
        fused_kernels.add_rmsnorm(x, x, x[0, 1:])
    with pytest.raises(ValueError, match=r"^gate_up"):
        fused_kernels.swiglu(x[:, 1:])
