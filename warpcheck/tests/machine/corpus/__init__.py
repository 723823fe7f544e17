"""Ordinary kernels as people write them, for which nothing in the machine was tuned.

Each kernel reads ``a`` and ``c`` and writes ``b``. The first line of its file declares the launch.
`benchmarks.hardware` measures the same kernels on a GPU.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from machine.launching import aligned

__all__ = ["KERNELS", "Usual", "inputs"]

FLOAT_COUNT = 1 << 18
INT_COUNT = 1 << 14


@dataclass(frozen=True)
class Usual:
    """A kernel of this folder, its launch, and its argument ``n``."""

    name: str
    source: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    n: int


def inputs() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Return new buffers a, c, and b: normal floats, integers of 16 bits, and zeros."""
    generator = np.random.default_rng(15)
    a = aligned(FLOAT_COUNT)
    c = aligned(INT_COUNT, np.int32)
    b = aligned(FLOAT_COUNT)
    a[:], c[:] = generator.standard_normal(FLOAT_COUNT, np.float32), generator.integers(0, 1 << 16, INT_COUNT, np.int32)
    return a, c, b


def _read(path: Path) -> Usual:
    source = path.read_text()
    header = re.match(r"// grid ([\d ]+), block ([\d ]+), n (\d+): ", source)
    assert header, path
    grid, block = (tuple(map(int, extents.split())) for extents in header.groups()[:2])
    return Usual(path.stem, source, grid, block, int(header[3]))


KERNELS = [_read(path) for path in sorted(Path(__file__).parent.glob("*.cu"))]
