"""Kernel library: package the phase's kernels for others.

The project is in w16d_kernel_library/, next to this file: pyproject.toml, src/fused_kernels/, tests/. Write it. The
grader builds its wheel with setuptools and without a network, and installs the wheel where no file of the project is on
the path. This file is a program that uses the wheel there. The wheel installs the package fused_kernels and nothing
else, and requires torch and triton. Importing the package doesn't change torch's settings.

fused_kernels.add_rmsnorm(x, residual, weight, eps=1e-6) returns (y, h): h = x + residual, rounded to the dtype, and y =
h * weight / sqrt(mean of h^2 over the row + eps). x and residual have the shape (rows, columns), with any number of
rows, including none, and 1 to 8192 columns; weight has the shape (columns). fused_kernels.swiglu(gate_up) returns
silu(gate) * up of shape (rows, hidden), for gate_up of shape (rows, 2 * hidden) with the gate in the first half of the
columns.

Both functions have the same contract. Tensors are bfloat16 or float32, with one dtype and one device for all arguments,
with any strides, and with fewer than 2**31 elements. Arithmetic is in float32. Results are new tensors, and inputs are
not modified. A wrong type or dtype raises TypeError. A wrong number of axes, a wrong shape, or an eps that is not
positive raises ValueError. The message names the argument. Each function checks its arguments and calls an operator of
torch.library, which has a fake implementation and a gradient for every tensor. The kernels of the gradient are
operators, too. torch.compile(fullgraph=True) works with all operators, and opcheck reports nothing.

fused_kernels.benchmark.measure(function, rows, columns) times "add_rmsnorm" or "swiglu" on a bfloat16 matrix of that
shape, on a GPU if there is one. It returns a dict with "seconds" for a call, "baseline_seconds" for PyTorch's
operators, and "bytes" for reading each input once and writing each output once.

pytest runs the tests in tests/, in seconds and without a GPU. The tests call the functions of fused_kernels and have to
fail if one of them is wrong in a row or in a gradient, mishandles strides, or accepts arguments that the contract
rejects. The grader checks the values and gradients of `layer` below, then the contract, opcheck and torch.compile, the
benchmark, and the tests, with faults planted in the package. On a GPU, it compares the time of layer and its gradients
with PyTorch's operators.

Bytes of layer, for a matrix of n elements: add_rmsnorm moves 4n forward and 4n backward, swiglu 1.5n and 2.5n: 3.2 GB
for 16384 x 8192 bfloat16, 0.78 ms at the 4.15 TB/s at which an H200 copies.
"""

import fused_kernels
import torch


def layer(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y, h = fused_kernels.add_rmsnorm(x, residual, weight)
    return fused_kernels.swiglu(y), h
