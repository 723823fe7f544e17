import fused_kernels
import pytest
import torch


def formula(x, residual, weight):
    h = x + residual
    return h / (h * h).mean(1, keepdim=True).add(1e-6).sqrt() * weight, h


def gated(gate_up):
    gate, up = gate_up.chunk(2, 1)
    return gate * torch.sigmoid(gate) * up


def gradients(function, *given):
    leaves = [one.detach().requires_grad_() for one in given]
    made = function(*leaves)
    made = made if isinstance(made, tuple) else (made,)
    loss = sum((one * torch.arange(one.numel(), device=one.device).view(one.shape).cos()).sum() for one in made)
    return *made, *torch.autograd.grad(loss, leaves)


def same(function, other, *given):
    for one, due in zip(gradients(function, *given), gradients(other, *(x.double() for x in given)), strict=True):
        torch.testing.assert_close(one.double(), due, rtol=1e-4, atol=1e-4)


@pytest.fixture(params=["rows", "columns"])
def x(request):
    made = torch.randn(5, 94) if request.param == "rows" else torch.randn(94, 5).t()
    return made.to("cuda" if torch.cuda.is_available() else "cpu")


def test_norm(x):
    same(fused_kernels.add_rmsnorm, formula, x, x.flip(0), x[0])


def test_gate(x):
    same(fused_kernels.swiglu, gated, x)


@pytest.mark.parametrize("place", range(3))
def test_refused(x, place):
    given = [x, x, x[0]]
    given[place] = given[place].double()
    with pytest.raises(TypeError):
        fused_kernels.add_rmsnorm(*given)
