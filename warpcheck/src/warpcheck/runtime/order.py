"""The order of the blocks of a grid, and of the warps of a block: a kernel that depends on it gives other results.

0: from the first to the last. 1: from the last to the first. A prime above all counts: in steps of so many.
"""

from __future__ import annotations

from warpcheck.native import native

__all__ = ["place_at", "whose_turn"]


@native
def whose_turn(before: int, count: int, order: int) -> int:
    """Which of ``count`` has its turn after so many others."""
    if order == 0:
        return before
    if order == 1:
        return count - 1 - before
    return (before * order + order // 4) % count


@native
def place_at(number: int, blocks: int, size: int, order: int) -> int:
    """Which of the blocks has its turn after ``number`` others; those of a cluster of ``size`` come together."""
    rank = size - 1 - number % size if order == 1 else number % size
    return whose_turn(number // size, blocks // size, order) * size + rank
