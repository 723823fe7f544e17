"""Test the library with unittest, which pytest runs, too."""

import unittest

import torch
from fused_kernels import add_rmsnorm, swiglu

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


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


class Values(unittest.TestCase):
    def test_values_and_gradients(self):
        x, residual = torch.randn(2, 5, 94).to(DEVICE)
        weight = torch.randn(94).to(DEVICE)
        assert_equal(add_rmsnorm, reference_norm, x, residual, weight)
        assert_equal(swiglu, reference_swiglu, x)

    def test_transposed(self):
        x, residual = torch.randn(2, 94, 5).to(DEVICE).mT
        weight = torch.randn(94).to(DEVICE)
        assert_equal(add_rmsnorm, reference_norm, x, residual, weight)
        assert_equal(swiglu, reference_swiglu, x)


class Refused(unittest.TestCase):
    def test_mixed_dtypes(self):
        x = torch.randn(5, 94, device=DEVICE)
        with self.assertRaises(TypeError):  # noqa: PT027
            add_rmsnorm(x, x.half(), x[0])
        with self.assertRaises(TypeError):  # noqa: PT027
            add_rmsnorm(x, x, x[0].bfloat16())
