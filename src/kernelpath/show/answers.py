"""Compute answers to predictions that are pure arithmetic, so that no cell shows its formula beside the guess.

Everything that can be counted or measured is. These few cannot, and the text after each prediction derives them.
"""

from __future__ import annotations

from collections.abc import Sequence

FLOAT_BYTES = 4
WARP = 32


def threads_in_flight(bandwidth: float, latency: float, bytes_each: float) -> float:
    """Return the number of threads with `bytes_each` bytes in flight that keep memory busy (Little's law).

    The bandwidth is in bytes per second, the latency in seconds.
    """
    return bandwidth * latency / bytes_each


def bytes_per_thread(bandwidth: float, latency: float, threads: int) -> float:
    """Return the bytes that each thread of a copy has to load before it waits: half of the traffic is loads."""
    return bandwidth / 2 * latency / threads


def compute_bound_from(ridge: float) -> int:
    """Return the least n whose float32 GEMM of n x n matrices has an intensity (compulsory bytes) of `ridge`."""
    n = 1
    while product_intensity(n) < ridge:
        n += 1
    return n


def product_intensity(n: int) -> float:
    """Return the operations per compulsory byte of a float32 GEMM of n x n matrices."""
    return 2 * n**3 / (3 * n**2 * FLOAT_BYTES)


def product_bytes(n: int, tile: int) -> float:
    """Return the bytes that a tiled n x n float32 GEMM requests: the loads of A and B, and the stores of C."""
    return 2 * n**3 / tile * FLOAT_BYTES + n**2 * FLOAT_BYTES


def share_of_peak(wavefronts: float, multiply_adds: float = 4) -> float:
    """Return the share of the peak if each multiply-add of a warp needs `wavefronts`, and an SM serves one per cycle.

    Args:
        multiply_adds: The warp-wide multiply-adds that an SM executes per cycle.
    """
    return 1 / (wavefronts * multiply_adds)


def reads_per_multiply_add(side: int) -> float:
    """Return the shared-memory reads per multiply-add of a thread with side x side outputs of a GEMM."""
    return (side + side) / side**2


def padded_work(n: int, tile: int) -> float:
    """Return the work of an n x n x n GEMM in whole tiles, over the work of its own multiply-adds."""
    return (-(-n // tile) * tile / n) ** 3


def masked_share(columns: int) -> float:
    """Return the masked share of a block, if the block is the next power of two above `columns`."""
    return 1 - columns / (1 << (columns - 1).bit_length())


def values_per_thread(columns: int, warps: int) -> float:
    """Return the number of values of a row that each thread holds if `warps` warps hold the row."""
    return columns / (WARP * warps)


def speedup(before: float, after: float) -> float:
    """Return the speedup if time is proportional to the traffic."""
    return before / after


def fused_gain(operations: float, readers: int, bandwidth: float, rate: float) -> float:
    """Return the speedup if every reader recomputes a 4-byte value that one kernel stored for all readers before.

    Args:
        bandwidth: Bytes per second.
        rate: Operations per second.
    """
    unfused_seconds = operations / rate + (1 + readers) * FLOAT_BYTES / bandwidth
    return unfused_seconds / (readers * operations / rate)


def break_even(readers: int, bandwidth: float, rate: float) -> float:
    """Return the operations at which `fused_gain` is 1: the bytes saved take as long as the repeated operations."""
    return (1 + readers) * FLOAT_BYTES / bandwidth * rate / (readers - 1)


def order_of_tiles(down: int, across: int, group: int) -> list[int]:
    """Return the tile of each program, numbered by rows. Programs go down `group` rows before the next column."""
    tiles = []
    for first in range(0, down, group):
        rows = range(first, min(first + group, down))
        tiles += [row * across + column for column in range(across) for row in rows]
    return tiles


def panels(tiles: Sequence[int], across: int) -> tuple[int, int]:
    """Return the number of rows and of columns that the tiles cover, which is what they need of a and of b."""
    return len({tile // across for tile in tiles}), len({tile % across for tile in tiles})


def tail_share(tiles: int, multiprocessors: int) -> float:
    """Return the average share of busy multiprocessors, if each takes one tile at a time and all take equally long."""
    return tiles / (-(-tiles // multiprocessors) * multiprocessors)
