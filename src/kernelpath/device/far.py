"""A case whose tensors are longer than memory: address spans that take memory as they are touched, and a sample of the
thread blocks of each launch. It shows which offsets were computed in 32 bits, and nothing else.
"""

from __future__ import annotations

import itertools

from kernelpath.device.api import Dim3

MOST_BYTES = 64 << 30
"""That a storage may have."""

INSTRUCTIONS = 1 << 25
"""Lane-instructions of a launch: 0.1 s. A block that walks over the whole tensor gets no further."""

NOTES = 16
"""Launches of a call. One that makes a launch a row makes millions of them."""


def sample(grid: Dim3) -> list[int]:
    """The numbers of the blocks that run, x fastest: two by two at each corner of the grid, and one at three quarters.

    There an offset is past 2**31 where a tensor has 2**32 elements, so it comes out negative in an int. At the end it
    is past 2**32, where an unsigned int begins again at 0, with the elements of the first blocks.
    """
    edges = ({0, min(1, n - 1), max(n - 2, 0), n - 1} for n in grid)
    places = {*itertools.product(*edges), tuple(3 * n // 4 for n in grid)}
    return sorted(x + grid[0] * (y + grid[1] * z) for x, y, z in places)
