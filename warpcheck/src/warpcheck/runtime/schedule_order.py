"""The order of the blocks of a grid, and of the warps of a block. A kernel that depends on it gives other results.

Order 0 is ascending, 1 descending. A prime above all counts is a stride: consecutive turns are that many indices apart.
"""

from __future__ import annotations

from warpcheck.native import native

__all__ = ["scheduled_block", "scheduled_index"]


@native
def scheduled_index(position: int, count: int, order: int) -> int:
    """Return which of ``count`` indices comes at a position."""
    if order == 0:
        return position
    if order == 1:
        return count - 1 - position
    return (position * order + order // 4) % count


@native
def scheduled_block(position: int, blocks: int, cluster_size: int, order: int) -> int:
    """Return which block of the grid comes at a position; the blocks of a cluster stay together."""
    rank = cluster_size - 1 - position % cluster_size if order == 1 else position % cluster_size
    return scheduled_index(position // cluster_size, blocks // cluster_size, order) * cluster_size + rank
