"""Asynchronous SGEMM: the launch.

matmul(a, b) takes contiguous float32 matrices of any nonzero size, with shapes (m, k) and (k, n), and returns a @ b as
a new contiguous tensor of shape (m, n). The accumulators are strict float32: no TF32 and no tensor cores. a and b are
not always aligned to 16 bytes. Tensors may have more than 2**32 elements, so offsets need 64 bits.

Write the kernel in w08b_sgemm_async.cu, then launch it here. The grader checks the values; that cp.async copies at
least half of the bytes that are written to shared memory, and that no thread reads a copy before waiting for it; and
the requested bytes, sectors, bank conflicts and wavefronts, as in sgemm_registers. On a GPU, it compares the time with
the reference of sgemm_registers.

The grader enforces these limits on the largest case (m=256 n=256 k=256); smaller cases get some slack for partial
tiles. Each load or store may touch at most 1.3 times the sectors that its bytes require. In total, global memory
accesses may move at most 5 times the size of the inputs and outputs. Bank conflicts may add at most 1 wavefront per
request. Shared memory accesses may take at most 1.2 wavefronts per 128 multiply-adds (one cycle of an SM). At least 50%
of the bytes stored to shared memory must come from cp.async.
"""

from typing import NamedTuple

import torch

from kernelpath.lanes import cuda


class Tile(NamedTuple):
    """The tile sizes of a block, a warp and a thread, and other arguments of the template, in order."""

    rows: int
    columns: int
    depth: int
    warp_rows: int
    warp_columns: int
    high: int
    wide: int
    stages: int
    blocks: int  # minimum number of resident blocks per SM
    copy: int

    @property
    def threads(self) -> int:
        return self.rows // self.warp_rows * (self.columns // self.warp_columns) * 32

    @property
    def shared_bytes(self) -> int:
        return 4 * self.stages * self.depth * (self.rows + 4 + self.columns)

    def tiles(self, m: int, n: int) -> int:
        return -(-m // self.rows) * -(-n // self.columns)


MULTIPROCESSORS = 132  # an H200's; the table was measured there, but results are right on any GPU

LARGE = Tile(128, 256, 8, 64, 64, 16, 8, stages=4, blocks=1, copy=4)
MIDDLE = Tile(64, 128, 16, 32, 64, 8, 8, stages=3, blocks=3, copy=0)
SMALL = Tile(32, 128, 16, 32, 32, 8, 4, stages=4, blocks=4, copy=0)
FLAT = Tile(16, 128, 16, 16, 32, 4, 4, stages=4, blocks=6, copy=0)


def choose(m: int, n: int, k: int) -> tuple[Tile, int]:
    """Return the tile, and the number of parts into which k is split."""
    if m <= FLAT.rows:
        return FLAT, parts_of(k, MULTIPROCESSORS * 2 // FLAT.tiles(m, n))
    if last_wave(LARGE.tiles(m, n)) > 0.9:
        return LARGE, 1
    if m * n < 600 * 600:
        return SMALL, parts_of(k, 2 * MULTIPROCESSORS // SMALL.tiles(m, n))
    return MIDDLE, parts_of(k, 3 * MULTIPROCESSORS // MIDDLE.tiles(m, n))


def last_wave(tiles: int) -> float:
    """Return the share of the multiprocessors' time that is used if each computes one tile after another."""
    return tiles / (-(-tiles // MULTIPROCESSORS) * MULTIPROCESSORS)


def parts_of(k: int, most: int) -> int:
    """Return a number of parts such that each has at least 128 steps along k."""
    return max(1, min(most, k // 128))


def padded(matrix: torch.Tensor, multiple: int) -> tuple[torch.Tensor, int]:
    """Return a matrix whose rows start at multiples of `multiple` floats, the input if possible, and its row stride."""
    rows, columns = matrix.shape
    if columns % multiple == 0 and matrix.data_ptr() % 16 == 0:
        return matrix, columns
    pitch = -(-columns // multiple) * multiple
    to = matrix.new_empty(rows, pitch)
    kernel = cuda.kernel("w08b_sgemm_async.cu", "pad")
    kernel[(-(-pitch // 256), min(rows, 65_535)), 256](matrix, to, rows, columns, pitch)
    return to, pitch


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n)
    if out.numel() == 0 or k == 0:
        return out.zero_()
    tile, parts = choose(m, n, k)
    steps = -(-k // (tile.depth * parts))
    parts = -(-k // (tile.depth * steps))
    pitch_a, pitch_b = k, n
    if min(m, n) >= 64:  # two small copies cost less than many requests that straddle sectors
        (a, pitch_a), (b, pitch_b) = padded(a, 8), padded(b, 4)
    vector = "float4" if pitch_b % 4 == 0 and b.data_ptr() % 16 == 0 else "float"
    kernel = cuda.kernel("w08b_sgemm_async.cu", f"matmul<{', '.join(map(str, tile))}, {vector}>")
    to = out if parts == 1 else a.new_empty(parts, m, n)
    launch = kernel[(tile.tiles(m, n), parts), tile.threads, tile.shared_bytes]
    launch(a, b, to, m, n, k, pitch_a, pitch_b, steps, 1.0)
    if parts > 1:
        add = cuda.kernel("w08b_sgemm_async.cu", "add_parts")
        add[-(-m * n // 256), 256](to, out, m * n, parts)
    return out
