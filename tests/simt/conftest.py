"""Running CUDA C++ on the PTX machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.simt.launching import Run, buffer, compile_ptx
from warpcheck import simt


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
