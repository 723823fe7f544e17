"""Declare the places inside JAX that the course replaces so that JAX stays on the CPU."""

from __future__ import annotations

from warpcheck.hooks import Hook

# Imports every installed plugin and calls its ``initialize()``, whatever ``jax_platforms`` says.
DISCOVER_PLUGINS = Hook(
    "jax._src.xla_bridge",
    "discover_pjrt_plugins",
    "its plugins for GPUs cannot be kept out of the process that runs a submission",
)
