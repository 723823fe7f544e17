"""Softmax of each row, in Pallas.

softmax(x, interpret) takes an array of shape (rows, columns), float32 or bfloat16, with at least one row and 1 to 4096
columns, and returns softmax along each row as a new array of the same shape and dtype. It is computed in float32 and
rounded once, and is right for finite values of any size. interpret is passed to pallas_call.

One pallas_call does the work. Outside of it, arrays may be reshaped, padded, sliced and cast. The grader checks the
values in JAX's interpreter, that the kernel lowers for a TPU (Mosaic), for an NVIDIA GPU and for an AMD GPU (Triton),
and that only one step of the grid writes each block of the output, because a GPU runs the steps at the same time.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

ROWS = 8
LANES = 128


def softmax(x: jax.Array, interpret: bool = False) -> jax.Array:
    # TODO: a BlockSpec that all three platforms accept, and a kernel that reads a block of x_ref and writes out_ref
    raise NotImplementedError("return what pl.pallas_call(kernel, ..., interpret=interpret) makes of x")
