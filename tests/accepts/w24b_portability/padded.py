"""Padded to whole blocks before the kernel, as many TPU kernels do, and sliced behind it."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl


def kernel(x_ref, o_ref):
    x = x_ref[:, :].astype("float32")
    e = jnp.exp(x - x.max(-1, keepdims=True))
    o_ref[:, :] = (e * (1.0 / e.sum(-1, keepdims=True))).astype(o_ref.dtype)


def softmax(x, interpret=False):
    rows, columns = x.shape
    height, width = -(-rows // 16) * 16, max(128, 1 << (columns - 1).bit_length())
    padded = jnp.pad(x, ((0, height - rows), (0, width - columns)), constant_values=-3e38)
    spec = pl.BlockSpec((16, width), lambda i: (i, 0))
    out = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(padded.shape, x.dtype),
        grid=(height // 16,),
        in_specs=[spec],
        out_specs=spec,
        interpret=interpret,
    )(padded)
    return out[:rows, :columns]
