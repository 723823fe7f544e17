"""GEMM in strict float32: tiles of blocks, warps, threads and values, and copies that run ahead.

matmul(a, b) takes contiguous float32 matrices of any nonzero size, with shapes (m, k) and (k, n), and returns a @ b as
a new contiguous tensor of shape (m, n). The accumulators are strict float32, without TF32 or tensor cores. a and b
start at multiples of 16 bytes; their rows may start anywhere. Each tensor has fewer than 2**31 elements.

A block computes a tile of out from tiles of a and b that are `block_k` steps deep. cp.async copies these tiles to the
stages of a circular buffer in shared memory. While one stage is multiplied, the other `stages - 1` are in flight or
ready. A tiled MMA, here with single multiply-adds, distributes the tile over warps, lanes and values, and cute.gemm
multiplies a thread's values. In the meantime, the values for the next step along k are loaded into other registers.

CuTe's operands are (rows, k), so the kernel views b as (n, k). In shared memory, both tiles are contiguous along the
rows mode. If an access would be outside its matrix, a predicate makes cp.async write zeros instead.

Start with one stage and no predicates, for sizes that are multiples of the tile. The grader checks the values, that
cp.async copies at least half of the bytes that are written to shared memory, and that no thread reads a copy before
waiting for it. It counts sectors, bank conflicts and wavefronts, and on a GPU compares the time with cuBLAS without
TF32.

The grader enforces these limits on the largest case (m=256 n=256 k=256); smaller cases get some slack for partial
tiles. Each load or store may touch at most 1.3 times the sectors that its bytes require. In total, global memory
accesses may move at most 5 times the size of the inputs and outputs. Bank conflicts may add at most 1 wavefront per
request. Shared memory accesses may take at most 1.2 wavefronts per 128 multiply-adds (one cycle of an SM). At least 50%
of the bytes stored to shared memory must come from cp.async.

Bound: 2 m n k operations at 128 multiply-adds per cycle and SM, 67 TFLOP/s on an H200 at 1.98 GHz. At 4096 it reaches
51 TFLOP/s, 0.99 of cuBLAS. The lanes' zigzag and the early copies come from sgemm_async (week 8).
"""

from collections.abc import Callable
from typing import NamedTuple

import cutlass
import cutlass.cute as cute
import torch
from cutlass.memory import SmemAllocator

from kernelpath.lanes import cute as lane

GROUP_M = 8  # rows of tiles that neighboring blocks share, so that L2 serves b


class Tile(NamedTuple):
    """A block computes block_m x block_n of out, in k-tiles of block_k, with warps (along m, along n).

    stages: stages of the circular buffer. blocks: the minimum number of blocks that fit on an SM. unroll: steps per
    iteration of the loop.
    """

    block_m: int
    block_n: int
    block_k: int
    warps: tuple[int, int]
    stages: int
    blocks: int
    unroll: int = 1

    @property
    def threads(self) -> int:
        return 32 * self.warps[0] * self.warps[1]


LARGE = Tile(128, 256, 8, warps=(2, 4), stages=4, blocks=1, unroll=2)
MIDDLE = Tile(128, 128, 8, warps=(4, 2), stages=4, blocks=2)
SQUARE = Tile(64, 64, 16, warps=(2, 2), stages=4, blocks=6)
SMALL = Tile(64, 128, 8, warps=(2, 2), stages=4, blocks=4)
LANES = (4, 8)


def dealt_out(tile: Tile) -> cute.TiledMma:
    """Return which thread computes which values of a tile of out.

    The lanes of a warp are arranged 4 x 8 in a zigzag, so that lanes that read the same 16 bytes of a or of b are one
    or two apart. A lane computes squares of 4 x 4. Four neighboring rows or columns take one 16-byte read, and
    neighboring lanes read neighboring vectors.
    """
    (warps_m, warps_n), (lanes_m, lanes_n) = tile.warps, LANES
    thr_layout = cute.make_layout(
        (((2, 2), warps_m), (8, warps_n), 1),
        stride=(((1, 16), 32 * warps_n), (2, 32), 0),
    )

    def places(warps: int, lanes: int, size: int) -> cute.Layout:
        """(lane, warp, value) -> row, or column, of the tile."""
        per_warp = size // warps
        return cute.make_layout((lanes, warps, (4, per_warp // (4 * lanes))), stride=(4, per_warp, (1, 4 * lanes)))

    layout_m = places(warps_m, lanes_m, tile.block_m)
    layout_n = places(warps_n, lanes_n, tile.block_n)
    op = cute.nvgpu.MmaUniversalOp(cutlass.Float32)
    return cute.make_tiled_mma(op, thr_layout, permutation_mnk=(layout_m, layout_n, None))


def inside(coordinates: cute.Tensor, rows: cutlass.Int32) -> cute.Tensor:
    """Return for each access of a thread whether it is inside the rows of a matrix, and not before its column 0."""
    first = coordinates[(0, None), None, None]
    pred = cute.make_rmem_tensor(first.shape, cutlass.Boolean)
    for i in range(cute.size(pred)):
        row, column = first[i]
        pred[i] = (row < rows) & (column >= 0)
    return pred


def operand(matrix: cute.Tensor, tile: cutlass.Int32, copy: cute.ThrCopy, shared: cute.Tensor) -> Callable[..., None]:
    """Return begin(step along k, stage), which starts a thread's copies of tile `tile` along m or n to a stage.

    If k is not a multiple of the depth, the first tile starts before column 0, and all others are complete.
    """
    rows, depth, _ = shared.shape
    k_tiles = cute.ceil_div(matrix.shape[1], depth)
    tiles = (rows, depth), (tile, None)

    def tiled(tensor: cute.Tensor) -> cute.Tensor:
        shifted = cute.domain_offset((0, matrix.shape[1] - k_tiles * depth), tensor)
        return copy.partition_S(cute.local_tile(shifted, *tiles))

    source, target = tiled(matrix), copy.partition_D(shared)
    coordinates = tiled(cute.make_identity_tensor(matrix.shape))
    first_pred, pred = (inside(coordinates[None, None, None, k_tile], matrix.shape[0]) for k_tile in (0, 1))

    def begin(k_tile: int | cutlass.Int32, stage: int | cutlass.Int32) -> None:
        mask = first_pred if isinstance(k_tile, int) and k_tile == 0 else pred
        cute.copy(copy, source[None, None, None, k_tile], target[None, None, None, stage], pred=mask)

    return begin


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
    """Compute one tile of out per block. b: (n, k). width: the number of elements in a vector of b and out."""
    tidx, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    tiles_m, tiles_n = cute.ceil_div(out.shape, (tile.block_m, tile.block_n))
    first_m = block // (GROUP_M * tiles_n) * GROUP_M
    group_m = cutlass.min(tiles_m - first_m, GROUP_M)
    tile_m, tile_n = first_m + block % (GROUP_M * tiles_n) % group_m, block % (GROUP_M * tiles_n) // group_m

    smem = SmemAllocator()
    pitch = tile.block_m + 4  # a is transposed on the way; 4 more against bank conflicts
    stages = cute.make_layout((tile.block_m, tile.block_k, tile.stages), stride=(1, pitch, pitch * tile.block_k))
    sA = smem.allocate_tensor(cutlass.Float32, stages, 128)
    stages = cute.make_layout((tile.block_n, tile.block_k, tile.stages))
    sB = smem.allocate_tensor(cutlass.Float32, stages, 128)
    begin_a = operand(a, tile_m, copy_a.get_slice(tidx), sA)
    begin_b = operand(b, tile_n, copy_b.get_slice(tidx), sB)

    k_tiles = cute.ceil_div(a.shape[1], tile.block_k)
    for k_tile in cutlass.range_constexpr(tile.stages - 1):
        if k_tile < k_tiles:
            begin_a(k_tile, k_tile)
            begin_b(k_tile, k_tile)
        cute.arch.cp_async_commit_group()

    thr_mma = mma.get_slice(tidx)
    tCsA, tCsB = thr_mma.partition_A(sA), thr_mma.partition_B(sB)
    tCrA = mma.make_fragment_A(tCsA[None, None, None, 0])
    tCrB = mma.make_fragment_B(tCsB[None, None, None, 0])
    tiler = (tile.block_m, tile.block_n), (tile_m, tile_n)
    tCgC = thr_mma.partition_C(cute.local_tile(out, *tiler))
    acc = mma.make_fragment_C(tCgC)
    acc.fill(0)

    cute.arch.cp_async_wait_group(tile.stages - 2)
    cute.arch.sync_threads()
    cute.autovec_copy(tCsA[None, None, 0, 0], tCrA[None, None, 0])
    cute.autovec_copy(tCsB[None, None, 0, 0], tCrB[None, None, 0])
    stage, free_stage = cutlass.Int32(0), cutlass.Int32(tile.stages - 1)  # the current stage and the previous one
    for k_tile in cutlass.range(k_tiles, unroll=tile.unroll):
        for i in cutlass.range_constexpr(tile.block_k):
            if cutlass.const_expr(i == tile.block_k - 1):
                cute.arch.cp_async_wait_group(tile.stages - 2)
                cute.arch.sync_threads()  # the next stage has arrived for all threads, and all have read this one
                free_stage = stage
                if k_tile + 1 < k_tiles:
                    stage = (stage + 1) % tile.stages
            next_k = (i + 1) % tile.block_k
            cute.autovec_copy(tCsA[None, None, next_k, stage], tCrA[None, None, next_k])
            cute.autovec_copy(tCsB[None, None, next_k, stage], tCrB[None, None, next_k])
            if cutlass.const_expr(i == 0):
                if k_tile + tile.stages - 1 < k_tiles:
                    begin_a(k_tile + tile.stages - 1, free_stage)
                    begin_b(k_tile + tile.stages - 1, free_stage)
                cute.arch.cp_async_commit_group()
            cute.gemm(mma, acc, tCrA[None, None, i], tCrB[None, None, i], acc)

    tCcC = thr_mma.partition_C(cute.local_tile(cute.make_identity_tensor(out.shape), *tiler))
    atom = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), cutlass.Float32, num_bits_per_copy=32 * width)
    _, rows, columns = acc.shape
    for i in cutlass.range_constexpr(cute.size(rows)):
        for j in cutlass.range_constexpr(0, cute.size(columns), width):
            if cute.elem_less(tCcC[0, i, j], out.shape):
                vector = cute.make_rmem_tensor((width,), cutlass.Float32)
                for e in cutlass.range_constexpr(width):
                    vector[e] = acc[0, i, j + e]
                to = cute.make_tensor(tCgC[None, i, j].iterator, cute.make_layout((width,)))
                cute.copy(atom, vector, to)


@cute.jit
def launch(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor, tile: cutlass.Constexpr, width: cutlass.Constexpr):
    """Assign the tiles to threads, for the copies and for the MMA, and launch a block for each tile of out."""
    m, k = a.shape
    _, n = b.shape
    # The promise to the compiler that rows are multiples of `width` elements apart.
    b = cute.make_tensor(b.iterator, cute.make_layout((n, k), stride=(1, cute.assume(b.stride[0], divby=width))))
    out = cute.make_tensor(out.iterator, cute.make_layout((m, n), stride=(cute.assume(out.stride[0], divby=width), 1)))

    op = cute.nvgpu.cpasync.CopyG2SOp()
    single = cute.make_copy_atom(op, cutlass.Float32, num_bits_per_copy=32)
    vector = cute.make_copy_atom(op, cutlass.Float32, num_bits_per_copy=32 * width)
    # A warp copies 8 floats, a sector, of each of 4 rows of a, and whole rows of a tile of b.
    by_rows = cute.make_layout((tile.threads // 8, 8), stride=(8, 1))
    copy_a = cute.make_tiled_copy_tv(single, by_rows, cute.make_layout((1, 1)))
    run = min(tile.block_n // width, tile.threads)
    by_columns = cute.make_layout((run, tile.threads // run))
    copy_b = cute.make_tiled_copy_tv(vector, by_columns, cute.make_layout((width, 1)))

    blocks = cute.ceil_div(m, tile.block_m) * cute.ceil_div(n, tile.block_n)
    kernel = sgemm_kernel(a, b, out, copy_a, copy_b, dealt_out(tile), tile, width)
    kernel.launch(
        grid=[blocks, 1, 1],
        block=[tile.threads, 1, 1],
        min_blocks_per_mp=tile.blocks,
        preferred_smem_carveout=100,
    )


def choose(m: int, n: int) -> Tile:
    """Return the fastest tile on an H200: a smaller one if rows of b don't allow vectors, only copies of 4 bytes."""
    if m * n < 1800**2:
        return SMALL if m * n < 1200**2 else SQUARE
    return LARGE if n % 4 == 0 else MIDDLE


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n)
    if out.numel() == 0 or k == 0:
        return out.zero_()
    width = 1 if n % 4 else 4
    lane.run(launch, a, b, out, choose(m, n), width)
    return out
