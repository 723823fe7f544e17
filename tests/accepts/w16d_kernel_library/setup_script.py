"""A setup.py, as older projects have it, with the metadata there; custom_op."""

import fused_kernels


def layer(x, residual, weight):
    y, h = fused_kernels.add_rmsnorm(x, residual, weight)
    return fused_kernels.swiglu(y), h
