"""Tiles of 256 x 128: one half of a consumer's rows is promoted while the other consumer multiplies; DSL pipelines."""

import cutlass
import cutlass.cute as cute
import cutlass.utils.hopper_helpers as hopper
import torch
from cutlass import pipeline
from cutlass.cute.nvgpu import cpasync, warp, warpgroup
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum

from kernelpath.lanes import cute as lane

TILE = (256, 128, 128)
STAGES = 4
PEERS = 2
CONSUMERS = 2
THREADS = 128 * (1 + CONSUMERS)
GROUP = 8
BLOCK = 128
WAVES = TILE[0] // (64 * CONSUMERS)
MULTIPLY_REGISTERS = 232


@cute.jit
def product(
    a: cute.Tensor, b: cute.Tensor, scale_a: cute.Tensor, scale_b: cute.Tensor, out: cute.Tensor, blocks: cutlass.Int32
):
    rows = LayoutEnum.ROW_MAJOR
    k_major = rows.sm90_mma_major_mode()
    mma = hopper.make_trivial_tiled_mma(
        a.element_type,
        b.element_type,
        k_major,
        k_major,
        cutlass.Float32,
        (CONSUMERS, 1, 1),
        tiler_mn=(64, TILE[1]),
    )
    of_a = hopper.make_smem_layout_a(rows, TILE, a.element_type, STAGES)
    of_b = hopper.make_smem_layout_b(rows, TILE, b.element_type, STAGES)
    of_out = hopper.make_smem_layout_epi(out.element_type, rows, (64 * CONSUMERS, TILE[1]), 1)
    one = (None, None, 0)
    load, store = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileS2GOp()
    to_all = cpasync.CopyBulkTensorTileG2SMulticastOp() if PEERS > 1 else load
    kernel(
        mma,
        (of_a, of_b, of_out),
        scale_a,
        scale_b,
        cpasync.make_tiled_tma_atom(load, a, cute.slice_(of_a, one), (TILE[0], TILE[2])),
        cpasync.make_tiled_tma_atom(to_all, b, cute.slice_(of_b, one), (TILE[1], TILE[2]), num_multicast=PEERS),
        cpasync.make_tiled_tma_atom(store, out, cute.slice_(of_out, one), (64 * CONSUMERS, TILE[1])),
        cute.ceil_div(cute.ceil_div(a.shape[0], TILE[0]), PEERS),
        cute.ceil_div(b.shape[0], TILE[1]),
    ).launch(grid=[blocks, 1, 1], block=[THREADS, 1, 1], cluster=[PEERS, 1, 1])


@cute.jit
def tile_of(turn, down, across):
    """Row (of clusters) and column of tiles."""
    first = turn // (GROUP * across) * GROUP
    height = cutlass.min(down - first, GROUP)
    within = turn % (GROUP * across)
    return first + within % height, within // height


@cute.kernel
def kernel(mma, layouts, scale_a, scale_b, a, b, out, down: cutlass.Int32, across: cutlass.Int32):
    of_a, of_b, of_out = layouts
    (copy_a, a), (copy_b, b), (copy_out, out) = a, b, out
    thread, _, _ = cute.arch.thread_idx()
    warp_index = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
    block, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    begin, stride = block // PEERS, blocks // PEERS
    turns = down * across

    memory = SmemAllocator()
    shared_a = memory.allocate_tensor(copy_a.value_type, of_a.outer, 1024, of_a.inner)
    shared_b = memory.allocate_tensor(copy_b.value_type, of_b.outer, 1024, of_b.inner)
    shared_out = memory.allocate_tensor(copy_out.value_type, of_out.outer, 1024, of_out.inner)
    barriers = memory.allocate_array(cutlass.Int64, 2 * STAGES)

    one = (None, None, 0)
    ring = pipeline.PipelineTmaAsync.create(
        barrier_storage=barriers,
        num_stages=STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 4 * CONSUMERS * PEERS),
        tx_count=cute.size_in_bytes(copy_a.value_type, cute.slice_(of_a, one))
        + cute.size_in_bytes(copy_b.value_type, cute.slice_(of_b, one)),
        cta_layout_vmnk=cute.make_layout((1, PEERS, 1, 1)),
        defer_sync=True,
    )
    pipeline.pipeline_init_arrive(cluster_shape_mn=(PEERS, 1), is_relaxed=True)
    tiles_a = cute.local_tile(a, (TILE[0], TILE[2]), (None, None))
    tiles_b = cute.local_tile(b, (TILE[1], TILE[2]), (None, None))
    steps = cute.size(tiles_a, mode=[3])
    pipeline.pipeline_init_wait(cluster_shape_mn=(PEERS, 1))

    alone = cute.make_layout(1)
    if warp_index < 4:
        cute.arch.setmaxregister_decrease(40)
        if warp_index == 0:
            to_a, from_a = cpasync.tma_partition(
                copy_a, 0, alone, cute.group_modes(shared_a, 0, 2), cute.group_modes(tiles_a, 0, 2)
            )
            to_b, from_b = cpasync.tma_partition(
                copy_b, rank, cute.make_layout(PEERS), cute.group_modes(shared_b, 0, 2), cute.group_modes(tiles_b, 0, 2)
            )
            filling = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, STAGES)
            for turn in cutlass.range(begin, turns, stride, unroll=1):
                pair, column = tile_of(turn, down, across)
                for step in cutlass.range(steps, unroll=1):
                    ring.producer_acquire(filling)
                    full = ring.producer_get_barrier(filling)
                    cute.copy(
                        copy_a, from_a[None, pair * PEERS + rank, step], to_a[None, filling.index], tma_bar_ptr=full
                    )
                    if cutlass.const_expr(PEERS > 1):
                        cute.copy(
                            copy_b,
                            from_b[None, column, step],
                            to_b[None, filling.index],
                            tma_bar_ptr=full,
                            mcast_mask=cutlass.Int16((1 << PEERS) - 1),
                        )
                    else:
                        cute.copy(copy_b, from_b[None, column, step], to_b[None, filling.index], tma_bar_ptr=full)
                    filling.advance()
            ring.producer_tail(filling)
    else:
        cute.arch.setmaxregister_increase(MULTIPLY_REGISTERS)
        mine = mma.get_slice(thread - 128)
        fragments_a = mma.make_fragment_A(mine.partition_A(shared_a))
        fragments_b = mma.make_fragment_B(mine.partition_B(shared_b))
        total = cute.make_rmem_tensor(mma.partition_shape_C(TILE[:2]), cutlass.Float32)
        part = cute.make_rmem_tensor(mma.partition_shape_C((64 * CONSUMERS, TILE[1])), cutlass.Float32)
        scales = cute.make_rmem_tensor((2, WAVES), cutlass.Float32)
        places = mine.partition_C(cute.make_identity_tensor(TILE[:2]))
        st = cute.make_copy_atom(warp.StMatrix8x8x16bOp(False, 4), copy_out.value_type)
        storing = cute.make_tiled_copy_C(st, mma).get_slice(thread - 128)
        slots = storing.partition_D(shared_out[None, None, 0])
        from_out, to_out = cpasync.tma_partition(
            copy_out,
            0,
            alone,
            cute.group_modes(shared_out, 0, 2),
            cute.group_modes(cute.local_tile(out, (64 * CONSUMERS, TILE[1]), (None, None)), 0, 2),
        )

        reading = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
        for turn in cutlass.range(begin, turns, stride, unroll=1):
            pair, column = tile_of(turn, down, across)
            row = pair * PEERS + rank
            total.fill(0.0)
            for step in cutlass.range(steps, unroll=1):
                of_block = scale_b[column * steps + step]
                for i in cutlass.range_constexpr(2 * WAVES):
                    at = row * TILE[0] + places[(0, i % 2, 0), i // 2, 0][0]
                    scales[i] = scale_a[step * out.shape[0] + cutlass.min(at, out.shape[0] - 1)]
                ring.consumer_wait(reading)
                for wave in cutlass.range_constexpr(WAVES):
                    warpgroup.fence()
                    for deep in cutlass.range_constexpr(cute.size(fragments_a, mode=[2])):
                        mma.set(warpgroup.Field.ACCUMULATE, deep > 0)
                        cute.gemm(
                            mma,
                            part,
                            cute.append_ones(fragments_a[None, wave, deep, reading.index], up_to_rank=2),
                            fragments_b[None, None, deep, reading.index],
                            part,
                        )
                    warpgroup.commit_group()
                    warpgroup.wait_group(0)
                    if cutlass.const_expr(wave == WAVES - 1):
                        ring.consumer_release(reading)
                    for i in cutlass.range(cute.size(part), unroll_full=True):
                        total[None, wave, None][i] += part[i] * (scales[i // 2 % 2, wave] * of_block)
                reading.advance()

            for wave in cutlass.range_constexpr(WAVES):
                made = cute.make_rmem_tensor_like(part, copy_out.value_type)
                for i in cutlass.range(cute.size(part), unroll_full=True):
                    made[i] = total[None, wave, None][i].to(copy_out.value_type)
                if warp_index == 4:
                    cute.arch.cp_async_bulk_wait_group(0, read=True)
                cute.arch.barrier(barrier_id=1, number_of_threads=128 * CONSUMERS)
                cute.copy(st, storing.retile(made)[None, 0, None], slots[None, 0, None])
                cute.arch.fence_proxy("async.shared", space="cta")
                cute.arch.barrier(barrier_id=1, number_of_threads=128 * CONSUMERS)
                if warp_index == 4:
                    cute.copy(copy_out, from_out[None, 0], to_out[None, row * WAVES + wave, column])
                    cute.arch.cp_async_bulk_commit_group()
        if warp_index == 4:
            cute.arch.cp_async_bulk_wait_group(0, read=True)


def fp8_gemm(a, b, scale_a, scale_b):
    out = torch.empty(len(a), len(b), dtype=torch.bfloat16, device=a.device)
    tiles = -(-a.shape[0] // (TILE[0] * PEERS)) * -(-len(b) // TILE[1])
    n_sm = torch.cuda.get_device_properties(a.device).multi_processor_count
    blocks = PEERS * min(tiles, n_sm // PEERS)
    lane.run(product, a, b, scale_a.view(-1), scale_b.view(-1), out, blocks)
    return out
