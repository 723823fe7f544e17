"""With a GridSpec, a jitted entry, and the logarithm of the sum."""

from functools import partial

import jax
from jax import lax
from jax import numpy as jnp
from jax.experimental import pallas as pl


@partial(jax.jit, static_argnames="interpret")
def softmax(x, interpret=False):
    n = x.shape[1]
    width = max(pl.next_power_of_2(n), 128)

    def body(x_ref, y_ref):
        x = jnp.where(lax.broadcasted_iota("int32", (8, width), 1) < n, x_ref[...].astype(jnp.float32), -1e38)
        x = x - jnp.max(x, axis=1)[:, None]
        y_ref[...] = jnp.exp(x - jnp.log(jnp.sum(jnp.exp(x), axis=1))[:, None]).astype(y_ref.dtype)

    tile = pl.BlockSpec(block_shape=(8, width), index_map=lambda row: (row, 0))
    spec = pl.GridSpec(grid=pl.cdiv(x.shape[0], 8), in_specs=[tile], out_specs=tile)
    return pl.pallas_call(body, grid_spec=spec, out_shape=x, interpret=interpret)(x)
