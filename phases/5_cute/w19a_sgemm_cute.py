"""GEMM in strict float32: tiles of blocks, warps, threads and values, and copies that run ahead.

matmul(a, b) takes contiguous float32 matrices of shapes (m, k) and (k, n), of any size from 1, and returns a @ b as a
new contiguous tensor of shape (m, n). The sums are strict float32: no TF32 and no tensor cores. a and b begin at
multiples of 16 bytes; their rows need not. Each tensor has fewer than 2**31 elements.

A block makes a tile of out from tiles of a and b, `depth` steps along k at a time. These reach shared memory by
cp.async, in a ring of stages: `stages - 1` of them are in flight or waiting while one is multiplied. A tiled MMA, here
of single multiply-adds, distributes the tile over warps, lanes and values; cute.gemm multiplies what a thread holds.
The values of the next step along k are loaded into other registers while the current ones are multiplied.

Operands are (rows, k) for CuTe: b is seen as (n, k), and in shared memory both tiles lie with their rows contiguous.
Where an access would leave its matrix, a predicate makes cp.async write zeros instead.

Begin with one stage and no predicates, on sizes that tiles divide. Graded: the values; that at least half of what
reaches shared memory is copied by cp.async, and that nobody reads a copy before it was waited for; sectors, bank
conflicts and wavefronts; and on a GPU the time against cuBLAS without TF32.

Limits on the largest case, with room for edges on smaller ones: at most 1.3 times the sectors that the bytes of its
loads and stores need; at most 5 times the bytes of inputs and outputs moved; at most 1 wavefront per request added by
bank conflicts; at most 1.2 wavefronts of shared memory per cycle of multiply-adds; at least 50% of what is stored to
shared memory copied by cp.async.
"""

from collections.abc import Callable
from typing import NamedTuple

import cutlass
import cutlass.cute as cute
import torch
from cutlass.memory import SmemAllocator

from kernelpath.lanes import cute as lane

GROUP = 8  # rows of tiles that blocks of neighboring numbers share, and b with them in L2


class Tile(NamedTuple):
    """A block makes rows x columns of out, depth steps of k at a time, with warps (down, across).

    stages: of the ring. blocks: on an SM at a time, at least. unroll: steps that the loop makes in a row.
    """

    rows: int
    columns: int
    depth: int
    warps: tuple[int, int]
    stages: int
    blocks: int
    unroll: int = 1

    @property
    def threads(self) -> int:
        return 32 * self.warps[0] * self.warps[1]


SMALL = Tile(64, 128, 8, warps=(2, 2), stages=4, blocks=4)
LANES = (4, 8)


def dealt_out(tile: Tile) -> cute.TiledMma:
    """Which thread makes which values of a tile of out.

    Lanes stand 4 x 8 in a zigzag, so that those which read the same 16 bytes, of a or of b, are one or two apart. A
    lane makes squares of 4 x 4: four neighboring rows and columns are one 16-byte read each, and the lanes' reads are
    side by side.
    """
    # TODO: a layout of threads, and for rows and columns a layout (lane, warp, value) -> place; then make_tiled_mma


def inside(coordinates: cute.Tensor, rows: cutlass.Int32) -> cute.Tensor:
    """For each access of a thread whether it lies in the rows of a matrix, and not before its column 0."""
    # TODO: compare the coordinate of the first element of each access


def operand(matrix: cute.Tensor, at: cutlass.Int32, copy: cute.ThrCopy, shared: cute.Tensor) -> Callable[..., None]:
    """How a thread copies tiles of row `at` to the stages of shared memory: begin(step along k, stage).

    The first tile takes what k leaves over: it begins before column 0, and all others are whole.
    """
    # TODO: tiles of the matrix and of its coordinates, what this thread copies of them, and predicates


@cute.kernel
def sgemm_kernel(
    a: cute.Tensor,
    b: cute.Tensor,
    out: cute.Tensor,
    copy_a: cute.TiledCopy,
    copy_b: cute.TiledCopy,
    mma: cute.TiledMma,
    tile: cutlass.Constexpr,
    width: cutlass.Constexpr,
):
    """One block makes one tile of out. b: (n, k). width: elements of a vector of b and out."""
    # TODO: the ring in shared memory, the copies that run ahead, the product, and the store


@cute.jit
def launch(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor, tile: cutlass.Constexpr, width: cutlass.Constexpr):
    """Deal the tiles out to threads, for the copies and for the product, and launch a block for each tile of out."""
    # TODO: make the tiled copies, see b as (n, k), count the blocks and launch sgemm_kernel


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    raise NotImplementedError("TODO: write the kernel and its launch, then delete this line")
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n)
    if out.numel() == 0 or k == 0:
        return out.zero_()
    width = 1 if n % 4 else 4
    # TODO: choose a tile and run launch
    return out
