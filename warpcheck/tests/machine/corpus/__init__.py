"""Kernels of usual kinds, as people write them, that nothing was tuned for: ``a`` and ``c`` go in, ``b`` comes out.

The first line of each file says how it is launched. The comparison with the hardware measures the same kernels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from machine.launching import aligned

__all__ = ["KERNELS", "Usual", "inputs"]

FLOATS, INTS = 1 << 18, 1 << 14


@dataclass(frozen=True)
class Usual:
    """A kernel of this folder, its launch, and the number that it is given."""

    name: str
    source: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    n: int


def inputs() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """The buffers of every launch: normal floats, integers of 16 bits, zeros."""
    draw = np.random.default_rng(15)
    a, c, b = aligned(FLOATS), aligned(INTS, np.int32), aligned(FLOATS)
    a[:], c[:] = draw.standard_normal(FLOATS, np.float32), draw.integers(0, 1 << 16, INTS, np.int32)
    return a, c, b


def _read(path: Path) -> Usual:
    source = path.read_text()
    found = re.match(r"// grid ([\d ]+), block ([\d ]+), n (\d+): ", source)
    assert found, path
    grid, block = (tuple(map(int, extents.split())) for extents in found.groups()[:2])
    return Usual(path.stem, source, grid, block, int(found[3]))


KERNELS = [_read(path) for path in sorted(Path(__file__).parent.glob("*.cu"))]
