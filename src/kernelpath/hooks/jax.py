"""What the course sets inside JAX to have Pallas lower kernels for GPUs that are not here."""

from __future__ import annotations

from kernelpath.hooks import Hook

LOWERING = Hook(
    "jax", "config.jax_pallas_use_mosaic_gpu", "kernels of Pallas cannot be lowered for GPUs by way of Triton"
)
