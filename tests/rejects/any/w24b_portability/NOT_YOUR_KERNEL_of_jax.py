"""S1, a library does the work: the kernel for softmax that JAX has among its examples."""

from jax.experimental.pallas.ops.gpu import softmax as of_jax


def softmax(x, interpret=False):
    return of_jax.softmax(x, interpret=interpret)
