"""Fused kernels for transformers, as PyTorch operators with gradients."""

from fused_kernels.operators import add_rmsnorm, swiglu

__all__ = ["add_rmsnorm", "swiglu"]
