"""Running CUDA C++ on the PTX machine; how many examples a property is tried on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from kernelpath import simt
from tests.simt.launching import Run, buffer, compile_ptx

# KERNELPATH_EXAMPLES=5000 looks longer for what a property of tests/simt does not hold for.
settings.register_profile(
    "simt",
    max_examples=int(os.environ.get("KERNELPATH_EXAMPLES", "60")),
    deadline=None,
    derandomize="KERNELPATH_EXAMPLES" not in os.environ,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=False,
)
settings.load_profile("simt")


@pytest.fixture
def run() -> Run:
    """``run(source, grid, block, *arguments)``: numpy arrays go as pointers, in the names a, b, c and so on.

    ``fresh`` lists the arguments that count as not written yet.
    """

    def launch(
        source: str,
        grid: Any,
        block: Any,
        *arguments: Any,
        shared: int = 0,
        fresh: Sequence[int] = (),
        name: str = "kernel",
        **options: Any,
    ) -> simt.Launch:
        module, mangled = compile_ptx(source, name)
        values = [a.ctypes.data if isinstance(a, np.ndarray) else a for a in arguments]
        buffers = [
            buffer("abcdefgh"[index], argument, index not in fresh)
            for index, argument in enumerate(arguments)
            if isinstance(argument, np.ndarray)
        ]
        grid, block = (extent if isinstance(extent, tuple) else (extent,) for extent in (grid, block))
        return module.launch(mangled, grid=grid, block=block, shared=shared, args=values, buffers=buffers, **options)

    return launch
