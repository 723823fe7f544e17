import fused_kernels
import pytest
import torch


def reference_norm(x, residual, weight):
    h = x + residual
    return h / (h * h).mean(1, keepdim=True).add(1e-6).sqrt() * weight, h


def reference_swiglu(gate_up):
    gate, up = gate_up.chunk(2, 1)
    return gate * torch.sigmoid(gate) * up


def outputs_and_gradients(function, *inputs):
    leaves = [tensor.detach().requires_grad_() for tensor in inputs]
    outputs = function(*leaves)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    loss = sum(
        (tensor * torch.arange(tensor.numel(), device=tensor.device).view(tensor.shape).cos()).sum()
        for tensor in outputs
    )
    return *outputs, *torch.autograd.grad(loss, leaves)


def assert_equal(function, reference, *inputs):
    for actual, expected in zip(
        outputs_and_gradients(function, *inputs),
        outputs_and_gradients(reference, *(tensor.double() for tensor in inputs)),
        strict=True,
    ):
        torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=1e-4)


@pytest.fixture(params=["rows", "columns"])
def x(request):
    matrix = torch.randn(5, 94) if request.param == "rows" else torch.randn(94, 5).t()
    return matrix.to("cuda" if torch.cuda.is_available() else "cpu")


def test_norm(x):
    assert_equal(fused_kernels.add_rmsnorm, reference_norm, x, x.flip(0), x[0])


def test_gate(x):
    assert_equal(fused_kernels.swiglu, reference_swiglu, x)


@pytest.mark.parametrize("place", range(3))
def test_refused(x, place):
    arguments = [x, x, x[0]]
    arguments[place] = arguments[place].double()
    with pytest.raises(TypeError):
        fused_kernels.add_rmsnorm(*arguments)
