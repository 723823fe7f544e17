"""Run a case whose tensors are larger than memory, to detect offsets that were computed in 32 bits.

The storages are address spans that take memory only where they are accessed, and each launch runs a sample of its
thread blocks. Such a case detects nothing else.
"""

from __future__ import annotations

import itertools
import mmap
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from warpcheck import simt
from warpcheck.backend import Dim3
from warpcheck.layout import Access

if TYPE_CHECKING:
    import torch

# The size limit of one storage.
MAX_STORAGE_BYTES = 64 << 30

# The limit of lane-instructions in a launch, about 0.1 s. It cuts off a block that loops over the whole tensor.
MAX_INSTRUCTIONS = 1 << 25

# The limit of launches in a call. A call with one launch per row would make millions of launches.
MAX_LAUNCHES = 16


def sample(grid: Dim3) -> list[int]:
    """Return the linear indices of the blocks to run: the block at three quarters of the grid, then 2x2 at each corner.

    At three quarters of a tensor of 2**32 elements an offset exceeds 2**31, so an int wraps to a negative value. This
    block runs first, because a block that loops along a side may use up the instruction limit. At the end an offset
    exceeds 2**32, and an unsigned int wraps to the elements of the first blocks.
    """
    edges = ({0, min(1, n - 1), max(n - 2, 0), n - 1} for n in grid)
    middle, *corners = (
        x + grid[0] * (y + grid[1] * z)
        for x, y, z in [tuple(3 * n // 4 for n in grid), *sorted(itertools.product(*edges))]
    )
    return [middle, *sorted({*corners} - {middle})]


def find_unreached(launch: simt.Launch, buffers: Sequence[simt.Buffer]) -> set[str]:
    """Return the tensors of which a truncated launch has accessed no element past 2**31."""
    if not launch.cut:
        return set()
    thresholds = {buffer.name: buffer.itemsize << 31 for buffer in buffers if buffer.nbytes > buffer.itemsize << 31}
    return {name for name, nbytes in thresholds.items() if launch.reached[name] <= nbytes}


def is_complete_sample(launch: simt.Launch) -> bool:
    """Return whether all blocks of the sample completed, and each block selected its tiles by its own index.

    Blocks that take tickets from an atomic counter in global memory do not: the sampled blocks take the first tickets,
    so they show nothing about the end of the tensor.
    """
    atomics = (request for request in launch.accesses if request.access == Access.ATOMIC and not request.shared)
    return not launch.cut and next(atomics, None) is None


def reserve_readonly(nbytes: int) -> torch.Tensor:
    """Return a read-only uint8 tensor of zeros that takes address space but no memory."""
    import torch

    length = nbytes + mmap.PAGESIZE  # two spans must not touch: an end address would be ambiguous
    span = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about a read-only buffer
        return torch.frombuffer(span, dtype=torch.uint8, count=nbytes)
