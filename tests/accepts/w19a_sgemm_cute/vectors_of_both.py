"""Vectors of a too, as it lies: four steps of a row are one 16-byte copy and one 16-byte read; tiles of 32 x 64."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.nvgpu import cpasync

from kernelpath.lanes import cute as lane

ROWS, COLUMNS, DEPTH, STAGES = 32, 64, 8, 3


def bring(thread, matrix, tile, shape, corner, wide):
    atom = cute.make_copy_atom(cpasync.CopyG2SOp(), cutlass.Float32, num_bits_per_copy=32 * wide)
    run = shape[1] // wide
    threads = cute.make_layout((64 // run, run), stride=(run, 1))
    mine = cute.make_tiled_copy_tv(atom, threads, cute.make_layout((1, wide))).get_slice(thread)
    source = mine.partition_S(cute.local_tile(matrix, shape, corner))
    at = mine.partition_S(cute.local_tile(cute.make_identity_tensor(matrix.shape), shape, corner))
    first = at[(0, None), None, None]
    keep = cute.make_rmem_tensor(first.shape, cutlass.Boolean)
    for i in range(cute.size(keep)):
        keep[i] = cute.elem_less(first[i], matrix.shape)
    cute.copy(mine, source, mine.partition_D(tile), pred=keep)


@cute.kernel
def kernel(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor, wide_a: cutlass.Constexpr, wide_b: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    across, down, _ = cute.arch.block_idx()
    (m, k), n = a.shape, b.shape[1]
    smem = cutlass.utils.SmemAllocator()
    tile_a = smem.allocate_tensor(
        cutlass.Float32, cute.make_layout((ROWS, DEPTH, STAGES), stride=(DEPTH, 1, ROWS * DEPTH)), 16
    )
    tile_b = smem.allocate_tensor(
        cutlass.Float32, cute.make_layout((DEPTH, COLUMNS, STAGES), stride=(COLUMNS, 1, DEPTH * COLUMNS)), 16
    )

    steps = cute.ceil_div(k, DEPTH)
    x, y = thread % 16 * 4, thread // 16
    sums = cute.make_rmem_tensor(cute.make_layout((8, 4), stride=(4, 1)), cutlass.Float32)
    sums.fill(0.0)
    for s in cutlass.range_constexpr(STAGES - 1):
        if s < steps:
            bring(thread, a, tile_a[None, None, s], (ROWS, DEPTH), (down, s), wide_a)
            bring(thread, b, tile_b[None, None, s], (DEPTH, COLUMNS), (s, across), wide_b)
        cute.arch.cp_async_commit_group()
    for step in cutlass.range(steps, unroll=1):
        cute.arch.cp_async_wait_group(STAGES - 2)
        cute.arch.sync_threads()
        ahead = step + STAGES - 1
        if ahead < steps:
            bring(thread, a, tile_a[None, None, ahead % STAGES], (ROWS, DEPTH), (down, ahead), wide_a)
            bring(thread, b, tile_b[None, None, ahead % STAGES], (DEPTH, COLUMNS), (ahead, across), wide_b)
        cute.arch.cp_async_commit_group()
        of_a = cute.make_rmem_tensor((4,), cutlass.Float32)
        of_b = cute.make_rmem_tensor(cute.make_layout((4, 4), stride=(4, 1)), cutlass.Float32)
        for i in cutlass.range_constexpr(0, DEPTH, 4):
            for j in cutlass.range_constexpr(4):
                cute.autovec_copy(
                    cute.local_tile(tile_b[i + j, None, step % STAGES], (4,), (thread % 16,)), of_b[j, None]
                )
            for r in cutlass.range_constexpr(8):
                cute.autovec_copy(cute.local_tile(tile_a[y + 4 * r, None, step % STAGES], (4,), (i // 4,)), of_a)
                for j in cutlass.range_constexpr(4):
                    for c in cutlass.range_constexpr(4):
                        sums[r, c] += of_a[j] * of_b[j, c]

    store = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), cutlass.Float32, num_bits_per_copy=32 * wide_b)
    target = cute.local_tile(out, (1, wide_b), (None, None))
    for r in cutlass.range_constexpr(8):
        for c in cutlass.range_constexpr(0, 4, wide_b):
            row, column = down * ROWS + y + 4 * r, across * COLUMNS + x + c
            if row < m and column < n:
                four = cute.local_tile(sums[r, None], (wide_b,), (c // wide_b,))
                cute.copy(store, four, target[0, None, row, column // wide_b])


@cute.jit
def launch(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor, wide_a: cutlass.Constexpr, wide_b: cutlass.Constexpr):
    def promised(x, wide):
        return cute.make_tensor(x.iterator, cute.make_layout(x.shape, stride=(cute.assume(x.stride[0], divby=wide), 1)))

    grid = [cute.ceil_div(b.shape[1], COLUMNS), cute.ceil_div(a.shape[0], ROWS), 1]
    kernel(promised(a, wide_a), promised(b, wide_b), promised(out, wide_b), wide_a, wide_b).launch(
        grid=grid, block=[64, 1, 1]
    )


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    out = a.new_empty(a.shape[0], b.shape[1])
    wide = 4 if a.shape[1] % 4 == 0 and b.shape[1] % 4 == 0 else 1
    lane.run(launch, a, b, out, wide, wide)
    return out
