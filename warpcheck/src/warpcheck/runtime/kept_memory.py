"""Zeroed memory that is kept from one launch to the next.

The workers of ``block_workers`` need megabytes for each launch. The first access to a page that the operating system
has just granted takes some microseconds, which is more than recording all accesses to the granules of the page. So the
memory is cleared and kept for the next launch.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from warpcheck.runtime.arrays import address_of

__all__ = ["Arena"]

ALIGNMENT = 64  # bytes: an entry of a history is in one cache line
MAX_KEPT_BYTES = 1 << 27  # of this process

# Appending and popping are atomic, so that several threads may launch kernels at the same time.
_kept: list[npt.NDArray[np.uint8]] = []


class Arena:
    """Zeroed memory for one launch, taken in pieces.

    Args:
        size: The bytes of all pieces together, each rounded up to ALIGNMENT.

    Raises:
        MemoryError: There is not enough memory.
    """

    def __init__(self, size: int) -> None:
        try:
            memory = _kept.pop()
        except IndexError:
            memory = _aligned(size)
        # Memory that is too small is freed: the next launches will be like this one.
        self._memory = memory if memory.size >= size else _aligned(size)
        self._used = 0
        self._written: list[npt.NDArray[np.uint8]] = []

    def take(self, size: int, *, is_cleared: bool = False) -> npt.NDArray[np.uint8]:
        """Return the next piece.

        Args:
            is_cleared: Whether the caller clears it, unless the arena is released with ``clears_everything``.
        """
        piece = self._memory[self._used : self._used + size]
        assert piece.size == size
        self._used += rounded(size)
        if not is_cleared:
            self._written.append(piece)
        return piece

    def release(self, *, clears_everything: bool) -> None:
        """Clear the memory, to which nothing may refer any more, and keep it for a later launch."""
        for piece in [self._memory[: self._used]] if clears_everything else self._written:
            piece[:] = 0
        if self._memory.size + sum(memory.size for memory in list(_kept)) <= MAX_KEPT_BYTES:
            _kept.append(self._memory)


def rounded(size: int) -> int:
    """Return the bytes that a piece takes."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def _aligned(size: int) -> npt.NDArray[np.uint8]:
    memory = np.zeros(size + ALIGNMENT, np.uint8)
    start = -address_of(memory) % ALIGNMENT
    return memory[start : start + size]
