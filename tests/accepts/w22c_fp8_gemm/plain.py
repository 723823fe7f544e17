"""A block of one warpgroup per tile, no persistence: each part of the sum is promoted before the next one begins."""

import cutlass
import cutlass.cute as cute
import cutlass.utils.hopper_helpers as hopper
import torch
from cutlass import pipeline
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum

from kernelpath.lanes import cute as lane

TILE, STAGES, THREADS = (64, 128, 128), 3, 128


@cute.kernel
def multiply(mma, of_a, of_b, a, b, scale_a, scale_b, out):
    (copy_a, a), (copy_b, b) = a, b
    thread, _, _ = cute.arch.thread_idx()
    row, column, _ = cute.arch.block_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    memory = SmemAllocator()
    barriers = memory.allocate_array(cutlass.Int64, 2 * STAGES)
    shared_a = memory.allocate_tensor(copy_a.value_type, of_a.outer, 1024, of_a.inner)
    shared_b = memory.allocate_tensor(copy_b.value_type, of_b.outer, 1024, of_b.inner)
    tiles_a = cute.local_tile(a, (TILE[0], TILE[2]), (row, None))
    tiles_b = cute.local_tile(b, (TILE[1], TILE[2]), (column, None))
    alone = cute.make_layout(1)
    to_a, from_a = cpasync.tma_partition(
        copy_a, 0, alone, cute.group_modes(shared_a, 0, 2), cute.group_modes(tiles_a, 0, 2)
    )
    to_b, from_b = cpasync.tma_partition(
        copy_b, 0, alone, cute.group_modes(shared_b, 0, 2), cute.group_modes(tiles_b, 0, 2)
    )
    ring = pipeline.PipelineTmaAsync.create(
        barrier_storage=barriers,
        num_stages=STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, THREADS // 32),
        tx_count=TILE[2] * (TILE[0] + TILE[1]),
        cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)),
    )
    filling = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, STAGES)
    reading = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
    mine = mma.get_slice(thread)
    fragments_a = mma.make_fragment_A(mine.partition_A(shared_a))
    fragments_b = mma.make_fragment_B(mine.partition_B(shared_b))
    total = cute.make_rmem_tensor(mma.partition_shape_C(TILE[:2]), cutlass.Float32)
    part = cute.make_rmem_tensor_like(total)
    places = mine.partition_C(cute.make_identity_tensor(TILE[:2]))
    total.fill(0.0)
    steps = cute.size(tiles_a, mode=[2])
    for step in cutlass.range(steps + STAGES - 1, unroll=1):
        if warp == 0 and step < steps:
            ring.producer_acquire(filling)
            full = ring.producer_get_barrier(filling)
            cute.copy(copy_a, from_a[None, step], to_a[None, filling.index], tma_bar_ptr=full)
            cute.copy(copy_b, from_b[None, step], to_b[None, filling.index], tma_bar_ptr=full)
            filling.advance()
        if step >= STAGES - 1:
            ring.consumer_wait(reading)
            warpgroup.fence()
            for deep in cutlass.range_constexpr(TILE[2] // 32):
                at = (None, None, deep, reading.index)
                mma.set(warpgroup.Field.ACCUMULATE, deep > 0)
                cute.gemm(mma, part, fragments_a[at], fragments_b[at], part)
            warpgroup.commit_group()
            warpgroup.wait_group(0)
            ring.consumer_release(reading)
            reading.advance()
            block = step - (STAGES - 1)
            factors = cute.make_rmem_tensor(2, cutlass.Float32)
            for i in cutlass.range_constexpr(2):  # of a thread's two rows
                of_row = cutlass.min(row * TILE[0] + places[2 * i][0], out.shape[0] - 1)
                factors[i] = scale_a[block * out.shape[0] + of_row] * scale_b[column * steps + block]
            for i in cutlass.range(cute.size(total), unroll_full=True):
                total[i] += part[i] * factors[i // 2 % 2]

    for i in cutlass.range(cute.size(total), unroll_full=True):
        at = row * TILE[0] + places[i][0], column * TILE[1] + places[i][1]
        if cute.elem_less(at, out.shape):
            out[at] = total[i].to(out.element_type)


@cute.jit
def product(a: cute.Tensor, b: cute.Tensor, scale_a: cute.Tensor, scale_b: cute.Tensor, out: cute.Tensor):
    rows, dtype = LayoutEnum.ROW_MAJOR, a.element_type
    mma = hopper.make_trivial_tiled_mma(
        *(dtype, dtype, rows.sm90_mma_major_mode(), rows.sm90_mma_major_mode(), cutlass.Float32),
        *((1, 1, 1), TILE[:2]),
    )
    of_a = hopper.make_smem_layout_a(rows, TILE, dtype, STAGES)
    of_b = hopper.make_smem_layout_b(rows, TILE, dtype, STAGES)
    load = cpasync.CopyBulkTensorTileG2SOp()
    multiply(
        *(mma, of_a, of_b),
        cpasync.make_tiled_tma_atom(load, a, cute.select(of_a, [0, 1]), (TILE[0], TILE[2])),
        cpasync.make_tiled_tma_atom(load, b, cute.select(of_b, [0, 1]), (TILE[1], TILE[2])),
        *(scale_a, scale_b, out),
    ).launch(
        grid=[cute.ceil_div(out.shape[0], TILE[0]), cute.ceil_div(out.shape[1], TILE[1]), 1], block=[THREADS, 1, 1]
    )


def fp8_gemm(a, b, scale_a, scale_b):
    out = torch.empty(len(a), len(b), dtype=torch.bfloat16, device=a.device)
    lane.run(product, a, b, scale_a.view(-1), scale_b.view(-1), out)
    return out
