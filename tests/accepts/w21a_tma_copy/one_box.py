"""One warp and one box in each block: blocks hide each other's latency."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.nvgpu import cpasync
from cutlass.memory import SmemAllocator

from kernelpath.lanes import cute as lane


@cute.kernel
def move(load, src, store, dst, of_box: cute.Layout):
    column, row, _ = cute.arch.block_idx()
    memory = SmemAllocator()
    landed = memory.allocate_array(cutlass.Int64, 1)
    box = memory.allocate_tensor(load.value_type, of_box, 128)
    with cute.arch.elect_one():
        cute.arch.mbarrier_init(landed, 1)
        cute.arch.mbarrier_init_fence()
        cute.arch.mbarrier_arrive_and_expect_tx(landed, cute.size_in_bytes(load.value_type, of_box))
    cute.arch.sync_warp()

    alone, inside = cute.make_layout(1), cute.group_modes(box, 0, 2)
    here, there = cpasync.tma_partition(
        load, 0, alone, inside, cute.group_modes(cute.local_tile(src, of_box.shape, (row, column)), 0, 2)
    )
    cute.copy(load, there, here, tma_bar_ptr=landed)
    cute.arch.mbarrier_wait(landed, 0)
    here, there = cpasync.tma_partition(
        store, 0, alone, inside, cute.group_modes(cute.local_tile(dst, of_box.shape, (row, column)), 0, 2)
    )
    cute.copy(store, here, there)
    cute.arch.cp_async_bulk_commit_group()
    cute.arch.cp_async_bulk_wait_group(0, read=True)


@cute.jit
def copy(src: cute.Tensor, dst: cute.Tensor):
    rows, columns = 64, cutlass.const_expr(2048 // src.element_type.width)
    of_box = cute.make_layout((rows, columns), stride=(columns, 1))
    load = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), src, of_box, of_box.shape)
    store = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileS2GOp(), dst, of_box, of_box.shape)
    grid = [cute.ceil_div(src.shape[1], columns), cute.ceil_div(src.shape[0], rows), 1]
    move(*load, *store, of_box).launch(grid=grid, block=[32, 1, 1])


def tma_copy(x):
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    lane.run(copy, x, out)
    return out
