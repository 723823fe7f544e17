"""Softmax of each row, in Pallas.

softmax(x, interpret) takes an array of shape (rows, columns), float32 or bfloat16, with at least one row and 1 to 4096
columns, and returns softmax along each row as a new array of the same shape and dtype. It is computed in float32 and
rounded once. interpret is passed on to pallas_call.

One pallas_call does the work; outside of it arrays may be reshaped, padded, sliced and cast. Graded: the values, in
JAX's interpreter; that the kernel lowers for a TPU (Mosaic), for an NVIDIA GPU and for an AMD GPU (Triton); and that
each block of the output is written by one step of the grid, because a GPU runs the steps at the same time.

Traffic: every element is read and written once, as in fused_softmax. A TPU copies a block to VMEM by DMA while it
computes on the one before; a GPU's program loads it into registers. The block is what both accept: 8 rows and a
multiple of 128 columns for the TPU's tiles of 8 x 128, powers of two for Triton. What a block has beyond the array is
undefined when it is read.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

ROWS = 8
LANES = 128


def softmax_kernel(x_ref, out_ref, *, columns: int):
    """A block of rows, whole: what lies beyond the last column becomes -inf, whose exponential is 0."""
    x = x_ref[...].astype(jnp.float32)
    inside = jax.lax.broadcasted_iota(jnp.int32, x.shape, 1) < columns
    x = jnp.where(inside, x, -jnp.inf)
    numerator = jnp.exp(x - jnp.max(x, axis=1, keepdims=True))
    out_ref[...] = (numerator / jnp.sum(numerator, axis=1, keepdims=True)).astype(out_ref.dtype)


def softmax(x: jax.Array, interpret: bool = False) -> jax.Array:
    rows, columns = x.shape
    block = pl.BlockSpec((ROWS, max(LANES, pl.next_power_of_2(columns))), lambda i: (i, 0))
    return pl.pallas_call(
        functools.partial(softmax_kernel, columns=columns),
        grid=(pl.cdiv(rows, ROWS),),
        in_specs=[block],
        out_specs=block,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        interpret=interpret,
    )(x)
