"""Answers to predictions that are pure arithmetic, worked out here so that no cell shows its formula beside the guess.

What can be counted or measured instead is: these are the few that cannot, and the text after each derives them.
"""

from __future__ import annotations

from collections.abc import Sequence

FLOAT_BYTES = 4
WARP = 32


def threads_in_flight(bandwidth: float, latency: float, bytes_each: float) -> float:
    """How many threads with so many bytes in flight each keep memory busy, by Little's law. In bytes/s and seconds."""
    return bandwidth * latency / bytes_each


def bytes_per_thread(bandwidth: float, latency: float, threads: int) -> float:
    """What each of so many threads of a copy has to load before it waits: half of what moves is loaded."""
    return bandwidth / 2 * latency / threads


def compute_bound_from(ridge: float) -> int:
    """The least n at which a float32 product of n x n matrices has an intensity (compulsory bytes) of `ridge`."""
    n = 1
    while product_intensity(n) < ridge:
        n += 1
    return n


def product_intensity(n: int) -> float:
    """Operations per compulsory byte of a float32 product of n x n matrices."""
    return 2 * n**3 / (3 * n**2 * FLOAT_BYTES)


def product_bytes(n: int, tile: int) -> float:
    """Bytes that an n x n float32 product asks for with tiles of `tile`: the loads of A and B, and the stores of C."""
    return 2 * n**3 / tile * FLOAT_BYTES + n**2 * FLOAT_BYTES


def share_of_peak(wavefronts: float, multiply_adds: float = 4) -> float:
    """Of the peak, if each multiply-add of a warp needs so many wavefronts, and an SM serves one per cycle.

    multiply_adds: of warps, that an SM can do per cycle.
    """
    return 1 / (wavefronts * multiply_adds)


def reads_per_multiply_add(side: int) -> float:
    """Reads of shared memory per multiply-add, if a thread makes side x side outputs of a product."""
    return (side + side) / side**2


def padded_work(n: int, tile: int) -> float:
    """The work of a product of n x n matrices in whole tiles, over that of the n x n x n multiply-adds themselves."""
    return (-(-n // tile) * tile / n) ** 3


def masked_share(columns: int) -> float:
    """The share of a block that is masked: the row has `columns` elements, and the block is the next power of two."""
    return 1 - columns / (1 << (columns - 1).bit_length())


def values_per_thread(columns: int, warps: int) -> float:
    """How many values of a row each thread holds, if so many warps hold all of it."""
    return columns / (WARP * warps)


def times_as_fast(before: float, after: float) -> float:
    """How many times as fast, if time is in proportion to what is moved."""
    return before / after


def fused_gain(operations: float, readers: int, bandwidth: float, rate: float) -> float:
    """Times as fast if every reader computes a 4-byte value again, instead of one that stores it for all of them.

    bandwidth: bytes per second. rate: operations per second.
    """
    apart = operations / rate + (1 + readers) * FLOAT_BYTES / bandwidth
    return apart / (readers * operations / rate)


def break_even(readers: int, bandwidth: float, rate: float) -> float:
    """The operations at which `fused_gain` is 1: the bytes saved take as long as the operations repeated."""
    return (1 + readers) * FLOAT_BYTES / bandwidth * rate / (readers - 1)


def order_of_tiles(down: int, across: int, group: int) -> list[int]:
    """The tile of each program, numbered by rows: programs go down `group` rows before they take the next column."""
    tiles = []
    for first in range(0, down, group):
        rows = range(first, min(first + group, down))
        tiles += [row * across + column for column in range(across) for row in rows]
    return tiles


def panels(tiles: Sequence[int], across: int) -> tuple[int, int]:
    """How many rows and how many columns of tiles these tiles lie in: what they need of a, and of b."""
    return len({tile // across for tile in tiles}), len({tile % across for tile in tiles})


def tail_share(tiles: int, multiprocessors: int) -> float:
    """The share of the multiprocessors that is busy on average, if each makes a tile at a time, all as long."""
    return tiles / (-(-tiles // multiprocessors) * multiprocessors)
