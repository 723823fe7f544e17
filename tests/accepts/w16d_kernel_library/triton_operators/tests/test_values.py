"""For unittest, which pytest runs too."""

import unittest

import torch
from fused_kernels import add_rmsnorm, swiglu

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


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


class Values(unittest.TestCase):
    def test_values_and_gradients(self):
        x, residual = torch.randn(2, 5, 94).to(DEVICE)
        weight = torch.randn(94).to(DEVICE)
        same(add_rmsnorm, formula, x, residual, weight)
        same(swiglu, gated, x)

    def test_transposed(self):
        x, residual = torch.randn(2, 94, 5).to(DEVICE).mT
        weight = torch.randn(94).to(DEVICE)
        same(add_rmsnorm, formula, x, residual, weight)
        same(swiglu, gated, x)


class Refused(unittest.TestCase):
    def test_mixed_dtypes(self):
        x = torch.randn(5, 94, device=DEVICE)
        with self.assertRaises(TypeError):  # noqa: PT027
            add_rmsnorm(x, x.half(), x[0])
        with self.assertRaises(TypeError):  # noqa: PT027
            add_rmsnorm(x, x, x[0].bfloat16())
