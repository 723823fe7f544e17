"""Blocks that stay: the ring runs on from tile to tile, with a running count for stage and phase."""

import cutlass
import cutlass.utils.hopper_helpers as hopper
import torch
from cutlass import cute
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum

from kernelpath.lanes import cute as lane

TILE, DEPTH, STAGES = 128, 64, 5


@cute.kernel
def multiply(mma: cute.TiledMma, in_a, in_b, out: cute.Tensor):
    (copy_a, a, ring_a), (copy_b, b, ring_b) = in_a, in_b
    block, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    thread, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    memory = SmemAllocator()
    full = memory.allocate_array(cutlass.Int64, STAGES)
    empty = memory.allocate_array(cutlass.Int64, STAGES)
    shared_a = memory.allocate_tensor(copy_a.value_type, ring_a.outer, 1024, ring_a.inner)
    shared_b = memory.allocate_tensor(copy_b.value_type, ring_b.outer, 1024, ring_b.inner)
    shared_out = memory.allocate_tensor(out.element_type, cute.make_layout((TILE, TILE), stride=(TILE, 1)), 128)
    if thread == 0:
        for stage in cutlass.range_constexpr(STAGES):
            cute.arch.mbarrier_init(full + stage, 1)
            cute.arch.mbarrier_init(empty + stage, 4)
        cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()

    down, across = cute.ceil_div(out.shape[0], TILE), cute.ceil_div(out.shape[1], TILE)
    steps = cute.ceil_div(a.shape[1], DEPTH)
    tiles_a = cute.local_tile(a, (TILE, DEPTH), (None, None))
    tiles_b = cute.local_tile(b, (TILE, DEPTH), (None, None))
    alone = cute.make_layout(1)
    count = cutlass.Int32(0)
    if warp == 4:
        to_a, from_a = cpasync.tma_partition(
            copy_a, 0, alone, cute.group_modes(shared_a, 0, 2), cute.group_modes(tiles_a, 0, 2)
        )
        to_b, from_b = cpasync.tma_partition(
            copy_b, 0, alone, cute.group_modes(shared_b, 0, 2), cute.group_modes(tiles_b, 0, 2)
        )
        for tile in cutlass.range(block, down * across, blocks, unroll=1):
            for step in cutlass.range(steps, unroll=1):
                stage = count % STAGES
                cute.arch.mbarrier_wait(empty + stage, (count // STAGES & 1) ^ 1)
                with cute.arch.elect_one():
                    cute.arch.mbarrier_arrive_and_expect_tx(full + stage, 4 * TILE * DEPTH)
                cute.copy(copy_a, from_a[None, tile % down, step], to_a[None, stage], tma_bar_ptr=full + stage)
                cute.copy(copy_b, from_b[None, tile // down, step], to_b[None, stage], tma_bar_ptr=full + stage)
                count += 1
    else:
        mine = mma.get_slice(thread)
        operand_a = mma.make_fragment_A(mine.partition_A(shared_a))
        operand_b = mma.make_fragment_B(mine.partition_B(shared_b))
        total = cute.make_rmem_tensor(mma.partition_shape_C((TILE, TILE)), cutlass.Float32)
        places = mine.partition_C(shared_out)
        for tile in cutlass.range(block, down * across, blocks, unroll=1):
            for step in cutlass.range(steps, unroll=1):
                stage = count % STAGES
                cute.arch.mbarrier_wait(full + stage, count // STAGES & 1)
                mma.set(warpgroup.Field.ACCUMULATE, step > 0)
                warpgroup.fence()
                for part in cutlass.range_constexpr(DEPTH // 16):
                    cute.gemm(mma, total, operand_a[None, None, part, stage], operand_b[None, None, part, stage], total)
                    mma.set(warpgroup.Field.ACCUMULATE, True)
                warpgroup.commit_group()
                warpgroup.wait_group(0)
                with cute.arch.elect_one():
                    cute.arch.mbarrier_arrive(empty + stage)
                count += 1
            cute.arch.barrier(barrier_id=1, number_of_threads=128)
            for i in cutlass.range_constexpr(cute.size(total)):
                places[i] = total[i].to(out.element_type)
            cute.arch.barrier(barrier_id=1, number_of_threads=128)
            for i in cutlass.range(thread, TILE * TILE, 128, unroll=4):
                row, column = tile % down * TILE + i // TILE, tile // down * TILE + i % TILE
                if row < out.shape[0] and column < out.shape[1]:
                    out[row, column] = shared_out[i // TILE, i % TILE]


@cute.jit
def gemm(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor, processors: cutlass.Int32):
    rows, dtype = LayoutEnum.ROW_MAJOR, a.element_type
    major, load = rows.sm90_mma_major_mode(), cpasync.CopyBulkTensorTileG2SOp()
    mma = hopper.make_trivial_tiled_mma(dtype, dtype, major, major, cutlass.Float32, (1, 1, 1), tiler_mn=(64, TILE))
    ring = hopper.make_smem_layout_a(rows, (TILE, TILE, DEPTH), dtype, STAGES)
    in_a = (*cpasync.make_tiled_tma_atom(load, a, ring, (TILE, DEPTH)), ring)
    in_b = (*cpasync.make_tiled_tma_atom(load, b, ring, (TILE, DEPTH)), ring)
    tiles = cute.ceil_div(out.shape[0], TILE) * cute.ceil_div(out.shape[1], TILE)
    multiply(mma, in_a, in_b, out).launch(grid=[cutlass.min(tiles, processors), 1, 1], block=[160, 1, 1])


def wgmma_gemm(a, b):
    out = torch.empty(len(a), len(b), dtype=a.dtype, device=a.device)
    device = torch.cuda.get_device_properties(a.device if a.is_cuda else None)
    lane.run(gemm, a, b, out, device.multi_processor_count)
    return out
