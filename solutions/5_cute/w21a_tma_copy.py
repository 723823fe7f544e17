"""Copy a matrix with the TMA unit.

tma_copy(x) takes a matrix of float32 or bfloat16 with fewer than 2**31 elements and returns a contiguous copy. Its
rows, its address and the distance between its rows are multiples of 16 bytes. x may be some columns of a wider matrix,
so its row stride may exceed the length of a row.

One thread requests a box of the matrix from the TMA unit, which copies it to shared memory. The unit computes the
addresses, checks the bounds, and writes zeros for elements outside the matrix. An mbarrier reports when the box has
arrived. A second copy stores the box in the result, where the unit skips elements outside the matrix. No element passes
through a register.

Start with one box per block. Then give a block several boxes and a circular buffer, so that loads run ahead. Warp 0
loads, warp 1 stores, and each stage has two mbarriers, full and empty. The grader checks that the copy is bitwise
equal, counts the bytes that TMA moves, and on a GPU compares the time with PyTorch's copy.

The grader enforces these limits on the largest case (rows=160 columns=2176 beside=0 dtype=float32); smaller cases get
some slack for partial tiles. In total, global memory accesses may move at most 1.05 times the size of the inputs and
outputs. At least 95% of the global memory traffic must go through TMA.

Bound: each element is read once and written once; for 16,384 x 16,384 float32 elements that is 2 GiB, 0.5 ms at 4.2
TB/s on an H200. The copy is memory-bound. On that GPU it reaches 0.98 of the speed of PyTorch's copy (0.99 in
bfloat16), and 1.41 if x is part of a wider matrix. More boxes per block are slower (0.97 with 6, 0.94 with 16 and 4
stages), persistent blocks reach 0.92 to 0.96, and one box per block 0.99. A circular buffer pays off when the consumer
computes, as in wgmma_gemm.
"""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.nvgpu import cpasync
from cutlass.memory import SmemAllocator

from kernelpath.lanes import cute as lane

WARP = 32
ROWS, ROW_BYTES = 16, 512  # the size of a box
STAGES = 3
LAG = 1  # stores that may still be reading their stages when the next one is issued
BOXES = 4  # per block


@cute.kernel
def copy_kernel(load: cute.CopyAtom, src: cute.Tensor, store: cute.CopyAtom, dst: cute.Tensor, ring: cute.Layout):
    """Load boxes in warp 0 and store them in warp 1. ring: (row, column, stage) -> offset in the circular buffer.

    Box n of a block uses stage n % STAGES, in the phase n // STAGES of both mbarriers of the stage.
    """
    block, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    tidx, _, _ = cute.arch.thread_idx()
    warp_id = cute.arch.make_warp_uniform(cute.arch.warp_idx())

    memory = SmemAllocator()
    full = memory.allocate_array(cutlass.Int64, STAGES)
    empty = memory.allocate_array(cutlass.Int64, STAGES)
    stages = memory.allocate_tensor(load.value_type, ring, 128)
    if tidx == 0:
        for stage in cutlass.range_constexpr(STAGES):
            cute.arch.mbarrier_init(full + stage, 1)
            cute.arch.mbarrier_init(empty + stage, 1)
        cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()

    box = cute.select(ring, mode=[0, 1])
    tXsX, tXgX = partition(load, stages, src, box.shape)
    tYsY, tYgY = partition(store, stages, dst, box.shape)
    tiles_m, tiles_n = tXgX.shape[1]
    count = cute.ceil_div(tiles_m * tiles_n - block, blocks)

    if warp_id == 0:
        for n in cutlass.range(count, unroll=1):
            stage, phase = n % STAGES, n // STAGES % 2
            coord = place(block + n * blocks, tiles_n)
            cute.arch.mbarrier_wait(empty + stage, phase ^ 1)  # a new mbarrier's previous phase counts as complete
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(full + stage, cute.size_in_bytes(load.value_type, box))
            cute.copy(load, tXgX[None, coord], tXsX[None, stage], tma_bar_ptr=full + stage)
    else:
        for n in cutlass.range(count, unroll=1):
            stage, phase = n % STAGES, n // STAGES % 2
            coord = place(block + n * blocks, tiles_n)
            cute.arch.mbarrier_wait(full + stage, phase)
            cute.copy(store, tYsY[None, stage], tYgY[None, coord])
            cute.arch.cp_async_bulk_commit_group()
            cute.arch.cp_async_bulk_wait_group(LAG, read=True)
            if n >= LAG:
                with cute.arch.elect_one():
                    cute.arch.mbarrier_arrive(empty + (n - LAG) % STAGES)
        cute.arch.cp_async_bulk_wait_group(0, read=True)  # shared memory must be read before the block exits


@cute.jit
def place(box: cutlass.Int32, tiles_n: cutlass.Int32):
    """Return the row and the column of a box. The boxes in flight are neighbors, row by row."""
    return box // tiles_n, box % tiles_n


@cute.jit
def partition(atom: cute.CopyAtom, stages: cute.Tensor, matrix: cute.Tensor, box: cutlass.Constexpr):
    """Return the stages and the boxes of the matrix, by row and column, in the form that the atom expects."""
    boxes = cute.zipped_divide(matrix, box)
    return cpasync.tma_partition(atom, 0, cute.make_layout(1), cute.group_modes(stages, 0, 2), boxes)


@cute.jit
def copy(src: cute.Tensor, dst: cute.Tensor):
    """Create a tensor map for each side, and launch a block for every BOXES boxes."""
    columns = cutlass.const_expr(ROW_BYTES * 8 // src.element_type.width)
    ring = cute.make_ordered_layout((ROWS, columns, STAGES), order=(1, 0, 2))
    box = cute.select(ring, mode=[0, 1])
    load, from_src = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), src, box, box.shape)
    store, to_dst = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileS2GOp(), dst, box, box.shape)
    boxes = cute.ceil_div(src.shape[0], ROWS) * cute.ceil_div(src.shape[1], columns)
    grid = [cute.ceil_div(boxes, BOXES), 1, 1]
    copy_kernel(load, from_src, store, to_dst, ring).launch(grid=grid, block=[2 * WARP, 1, 1])


def tma_copy(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    lane.run(copy, x, out)
    return out
