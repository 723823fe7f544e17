"""A case whose tensors are longer than memory: address spans that take memory as they are touched, and a sample of the
thread blocks of each launch. It shows which offsets were computed in 32 bits, and nothing else.
"""

from __future__ import annotations

import mmap
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

import itertools
from collections.abc import Sequence

from warpcheck import simt
from warpcheck.backend import Dim3
from warpcheck.layout import Access

MOST_BYTES = 64 << 30
"""That a storage may have."""

INSTRUCTIONS = 1 << 25
"""Lane-instructions of a launch: 0.1 s. A block that walks over the whole tensor gets no further."""

NOTES = 16
"""Launches of a call. One that makes a launch a row makes millions of them."""


def sample(grid: Dim3) -> list[int]:
    """The numbers of the blocks that run, x fastest: one at three quarters of the grid, and two by two at each corner.

    At three quarters an offset is past 2**31 where a tensor has 2**32 elements, so it comes out negative in an int.
    This block runs first: where blocks walk along a side, the others may not get their turn. At the end an offset is
    past 2**32, where an unsigned int begins again at 0, with the elements of the first blocks.
    """
    edges = ({0, min(1, n - 1), max(n - 2, 0), n - 1} for n in grid)
    middle, *corners = (
        x + grid[0] * (y + grid[1] * z)
        for x, y, z in [tuple(3 * n // 4 for n in grid), *sorted(itertools.product(*edges))]
    )
    return [middle, *sorted({*corners} - {middle})]


def unreached(launch: simt.Launch, buffers: Sequence[simt.Buffer]) -> set[str]:
    """The tensors of which a launch that was cut has not accessed any element past 2**31."""
    if not launch.cut:
        return set()
    past = {buffer.name: buffer.itemsize << 31 for buffer in buffers if buffer.nbytes > buffer.itemsize << 31}
    return {name for name, nbytes in past.items() if launch.reached[name] <= nbytes}


def is_whole(launch: simt.Launch) -> bool:
    """Return whether all blocks of the sample came to their end, and which of the tiles they took was theirs alone.

    Where blocks take tickets from a counter in global memory, those of a sample take the first.
    """
    atomics = (request for request in launch.accesses if request.access == Access.ATOMIC and not request.shared)
    return not launch.cut and next(atomics, None) is None


def without_memory(nbytes: int) -> torch.Tensor:
    """A uint8 tensor of an address span that reads as zeros and cannot be written to: it never takes any memory."""
    import torch

    room = nbytes + mmap.PAGESIZE  # no span begins where another one ends
    span = mmap.mmap(-1, room, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch does not like what cannot be written to
        return torch.frombuffer(span, dtype=torch.uint8, count=nbytes)
