"""A single warp does both: it loads ahead, stores what has landed, and reuses a stage that has been read."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.nvgpu import cpasync
from cutlass.memory import SmemAllocator

from kernelpath.lanes import cute as lane

ROWS, STAGES, BOXES = 16, 6, 24


@cute.jit
def ask(load, boxes, ring, full, first, n, nbytes: cutlass.Constexpr):
    with cute.arch.elect_one():
        cute.arch.mbarrier_arrive_and_expect_tx(full + n % STAGES, nbytes)
    cute.copy(load, boxes[None, first + n], ring[None, n % STAGES], tma_bar_ptr=full + n % STAGES)


@cute.kernel
def move(load, src, store, dst, of_ring: cute.Layout):
    block, _, _ = cute.arch.block_idx()
    memory = SmemAllocator()
    full = memory.allocate_array(cutlass.Int64, STAGES)
    ring = cute.group_modes(memory.allocate_tensor(load.value_type, of_ring, 128), 0, 2)
    box = cute.select(of_ring, mode=[0, 1])
    with cute.arch.elect_one():
        for stage in cutlass.range_constexpr(STAGES):
            cute.arch.mbarrier_init(full + stage, 1)
        cute.arch.mbarrier_init_fence()
    cute.arch.sync_warp()

    alone = cute.make_layout(1)
    to_ring, boxes = cpasync.tma_partition(load, 0, alone, ring, cute.zipped_divide(src, box.shape))
    from_ring, places = cpasync.tma_partition(store, 0, alone, ring, cute.zipped_divide(dst, box.shape))
    first = block * BOXES
    count = cutlass.min(cute.size(boxes, mode=[1]) - first, BOXES)
    nbytes = cutlass.const_expr(cute.size_in_bytes(load.value_type, box))
    for n in cutlass.range(cutlass.min(count, STAGES - 1), unroll=1):
        ask(load, boxes, to_ring, full, first, n, nbytes)
    for n in cutlass.range(count, unroll=1):
        cute.arch.mbarrier_wait(full + n % STAGES, n // STAGES % 2)
        cute.copy(store, from_ring[None, n % STAGES], places[None, first + n])
        cute.arch.cp_async_bulk_commit_group()
        if n + STAGES - 1 < count:
            cute.arch.cp_async_bulk_wait_group(1, read=True)
            ask(load, boxes, to_ring, full, first, n + STAGES - 1, nbytes)
    cute.arch.cp_async_bulk_wait_group(0, read=True)


@cute.jit
def copy(src: cute.Tensor, dst: cute.Tensor):
    columns = cutlass.const_expr(8192 // src.element_type.width)
    ring = cute.make_layout((ROWS, columns, STAGES), stride=(columns, 1, ROWS * columns))
    box = cute.select(ring, mode=[0, 1])
    load = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), src, box, box.shape)
    store = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileS2GOp(), dst, box, box.shape)
    boxes = cute.ceil_div(src.shape[0], ROWS) * cute.ceil_div(src.shape[1], columns)
    move(*load, *store, ring).launch(grid=[cute.ceil_div(boxes, BOXES), 1, 1], block=[32, 1, 1])


def tma_copy(x):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    lane.run(copy, x, out)
    return out
