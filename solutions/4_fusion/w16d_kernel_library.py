"""Kernel library: package the phase's kernels for others.

The project is in w16d_kernel_library/, next to this file: pyproject.toml, src/fused_kernels/, tests/. Write it. Its
wheel is built without a network, with setuptools, and installed where nothing of the project is on the path; this file
is a program that uses it there. The wheel installs the package fused_kernels and nothing else, and requires torch and
triton. Importing it changes no setting of torch's.

fused_kernels.add_rmsnorm(x, residual, weight, eps=1e-6) returns (y, h): h = x + residual, rounded to the dtype, and y =
h * weight / sqrt(mean of h^2 over the row + eps). x and residual have the shape (rows, columns), with any number of
rows, including none, and 1 to 8192 columns, weight the shape (columns). fused_kernels.swiglu(gate_up) returns
silu(gate) * up of shape (rows, hidden), for gate_up of shape (rows, 2 * hidden) with the gate in the first half of the
columns.

The contract of both: bfloat16 or float32, all arguments of one dtype and one device, any strides; tensors of fewer than
2**31 elements; arithmetic in float32; new tensors, and inputs that are not modified. A wrong type or dtype raises
TypeError, a wrong number of axes or shape, or an eps that is not positive, ValueError; the message names the argument.
Each is an operator of torch.library behind a function that checks, with a fake implementation and a gradient for every
tensor, whose kernels are operators, too: torch.compile(fullgraph=True) works with them, and opcheck reports nothing.

fused_kernels.benchmark.measure(function, rows, columns) times "add_rmsnorm" or "swiglu" on a bfloat16 matrix of that
shape, on a GPU if there is one. It returns a dict: "seconds" for a call, "baseline_seconds" for PyTorch's operators,
and "bytes", each input read once and each output written once.

pytest runs the tests in tests/, in seconds and without a GPU. The tests call the functions of fused_kernels and have to
fail if one of them is wrong: in a row or in a gradient, for strides, or because it accepts what the contract refuses.
The grader checks the values and gradients of layer below, then the contract, opcheck and torch.compile, the benchmark,
and the tests, with faults planted in the package. On a GPU, it compares the time of layer and its gradients with
PyTorch's operators.

Bytes of layer, for a matrix of n elements: add_rmsnorm moves 4n forward and 4n backward, swiglu 1.5n and 2.5n: 3.2 GB
for 16384 x 8192 bfloat16, 0.78 ms at the 4.15 TB/s that an H200 copies with.
"""

import fused_kernels
import torch


def layer(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y, h = fused_kernels.add_rmsnorm(x, residual, weight)
    return fused_kernels.swiglu(y), h
