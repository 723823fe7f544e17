"""With the pipelines of the DSL in place of mbarriers by hand, and a whole tile of the residual at a time."""

import cutlass
import cutlass.cute as cute
import cutlass.utils.hopper_helpers as hopper
import torch
from cutlass import pipeline
from cutlass.cute.nvgpu import cpasync, warp, warpgroup
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum

from kernelpath.lanes import cute as lane

TILE = (128, 128, 64)
STAGES = 4
CLUSTER = 2
CONSUMERS = 2
THREADS = 128 * (1 + CONSUMERS)
GROUP = 8


@cute.jit
def gelu(x):
    half = 0.5 * x
    return half + half * cute.math.tanh(x * (0.7978845608028654 + 0.035677408136300125 * x * x), approx=True)


@cute.jit
def product(
    a: cute.Tensor,
    b: cute.Tensor,
    bias: cute.Tensor,
    scale: cute.Tensor,
    residual: cute.Tensor,
    aux: cute.Tensor,
    out: cute.Tensor,
    blocks: cutlass.Int32,
):
    dtype, rows = a.element_type, LayoutEnum.ROW_MAJOR
    along_a, along_b = LayoutEnum.from_tensor(a), LayoutEnum.from_tensor(b)
    mma = hopper.make_trivial_tiled_mma(
        dtype,
        dtype,
        along_a.sm90_mma_major_mode(),
        along_b.sm90_mma_major_mode(),
        cutlass.Float32,
        (1, 1, 1),
        tiler_mn=(64, TILE[1]),
    )
    of_a = hopper.make_smem_layout_a(along_a, TILE, dtype, STAGES)
    of_b = hopper.make_smem_layout_b(along_b, TILE, dtype, STAGES)
    of_out = hopper.make_smem_layout_epi(dtype, rows, TILE[:2], CONSUMERS)
    of_aux = hopper.make_smem_layout_epi(dtype, rows, (64, TILE[1]), CONSUMERS)
    one = (None, None, 0)
    load, store = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileS2GOp()
    to_all = cpasync.CopyBulkTensorTileG2SMulticastOp() if CLUSTER > 1 else load
    kernel(
        mma,
        (of_a, of_b, of_out, of_aux),
        cpasync.make_tiled_tma_atom(load, a, cute.slice_(of_a, one), (TILE[0], TILE[2])),
        cpasync.make_tiled_tma_atom(to_all, b, cute.slice_(of_b, one), (TILE[1], TILE[2]), num_multicast=CLUSTER),
        cpasync.make_tiled_tma_atom(load, bias, cute.make_layout(TILE[1]), (TILE[1],)),
        cpasync.make_tiled_tma_atom(load, scale, cute.make_layout(TILE[0]), (TILE[0],)),
        cpasync.make_tiled_tma_atom(load, residual, cute.slice_(of_out, one), TILE[:2]),
        cpasync.make_tiled_tma_atom(store, aux, cute.slice_(of_aux, one), (64, TILE[1])),
        cpasync.make_tiled_tma_atom(store, out, cute.slice_(of_out, one), TILE[:2]),
        cute.ceil_div(cute.ceil_div(a.shape[0], TILE[0]), CLUSTER),
        cute.ceil_div(b.shape[0], TILE[1]),
    ).launch(grid=[blocks, 1, 1], block=[THREADS, 1, 1], cluster=[CLUSTER, 1, 1])


@cute.jit
def tile_of(turn, down, across):
    """Row (of clusters) and column of tiles."""
    first = turn // (GROUP * across) * GROUP
    height = cutlass.min(down - first, GROUP)
    within = turn % (GROUP * across)
    return first + within % height, within // height


@cute.kernel
def kernel(mma, layouts, a, b, bias, scale, residual, aux, out, down: cutlass.Int32, across: cutlass.Int32):
    of_a, of_b, of_out, of_aux = layouts
    (copy_a, a), (copy_b, b), (copy_bias, bias), (copy_scale, scale), (copy_residual, residual) = (
        a,
        b,
        bias,
        scale,
        residual,
    )
    (copy_aux, aux), (copy_out, out) = aux, out
    dtype = copy_a.value_type
    thread, _, _ = cute.arch.thread_idx()
    warp_index = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
    block, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    begin, stride = block // CLUSTER, blocks // CLUSTER
    turns = down * across

    memory = SmemAllocator()
    shared_a = memory.allocate_tensor(dtype, of_a.outer, 1024, of_a.inner)
    shared_b = memory.allocate_tensor(dtype, of_b.outer, 1024, of_b.inner)
    shared_out = memory.allocate_tensor(dtype, of_out.outer, 1024, of_out.inner)
    shared_aux = memory.allocate_tensor(dtype, of_aux.outer, 1024, of_aux.inner)
    shared_bias = memory.allocate_tensor(dtype, cute.make_layout((TILE[1], CONSUMERS)), 128)
    shared_scale = memory.allocate_tensor(cutlass.Float32, cute.make_layout((TILE[0], CONSUMERS)), 128)
    barriers = memory.allocate_array(cutlass.Int64, 2 * STAGES + 3 * CONSUMERS)
    order = barriers + 2 * STAGES + 2 * CONSUMERS

    one = (None, None, 0)
    cluster = cute.make_layout((1, CLUSTER, 1, 1))
    ring = pipeline.PipelineTmaAsync.create(
        barrier_storage=barriers,
        num_stages=STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 4 * CLUSTER),
        tx_count=cute.size_in_bytes(dtype, cute.slice_(of_a, one)) + cute.size_in_bytes(dtype, cute.slice_(of_b, one)),
        cta_layout_vmnk=cluster,
        defer_sync=True,
    )
    extras = pipeline.PipelineTmaAsync.create(
        barrier_storage=barriers + 2 * STAGES,
        num_stages=CONSUMERS,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 1),
        tx_count=cute.size_in_bytes(dtype, cute.slice_(of_out, one)) + TILE[1] * dtype.width // 8 + TILE[0] * 4,
        cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)),
        defer_sync=True,
    )
    if warp_index == 0:
        with cute.arch.elect_one():
            for i in cutlass.range_constexpr(CONSUMERS):
                cute.arch.mbarrier_init(order + i, 4)
    pipeline.pipeline_init_arrive(cluster_shape_mn=(CLUSTER, 1), is_relaxed=True)

    tiles_a = cute.local_tile(a, (TILE[0], TILE[2]), (None, None))
    tiles_b = cute.local_tile(b, (TILE[1], TILE[2]), (None, None))
    steps = cute.size(tiles_a, mode=[3])
    pipeline.pipeline_init_wait(cluster_shape_mn=(CLUSTER, 1))

    alone = cute.make_layout(1)
    if warp_index < 4:
        cute.arch.setmaxregister_decrease(40)
        if warp_index == 0:
            to_a, from_a = cpasync.tma_partition(
                copy_a, 0, alone, cute.group_modes(shared_a, 0, 2), cute.group_modes(tiles_a, 0, 2)
            )
            to_b, from_b = cpasync.tma_partition(
                copy_b,
                rank,
                cute.make_layout(CLUSTER),
                cute.group_modes(shared_b, 0, 2),
                cute.group_modes(tiles_b, 0, 2),
            )
            filling = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, STAGES)
            for turn in cutlass.range(begin, turns, stride, unroll=1):
                pair, column = tile_of(turn, down, across)
                for step in cutlass.range(steps, unroll=1):
                    ring.producer_acquire(filling)
                    full = ring.producer_get_barrier(filling)
                    cute.copy(
                        copy_a, from_a[None, pair * CLUSTER + rank, step], to_a[None, filling.index], tma_bar_ptr=full
                    )
                    if cutlass.const_expr(CLUSTER > 1):
                        cute.copy(
                            copy_b,
                            from_b[None, column, step],
                            to_b[None, filling.index],
                            tma_bar_ptr=full,
                            mcast_mask=cutlass.Int16((1 << CLUSTER) - 1),
                        )
                    else:
                        cute.copy(copy_b, from_b[None, column, step], to_b[None, filling.index], tma_bar_ptr=full)
                    filling.advance()
            ring.producer_tail(filling)
        elif warp_index == 1:
            tiles_more = cute.local_tile(residual, TILE[:2], (None, None))
            to_more, from_more = cpasync.tma_partition(
                copy_residual, 0, alone, cute.group_modes(shared_out, 0, 2), cute.group_modes(tiles_more, 0, 2)
            )
            to_bias, from_bias = cpasync.tma_partition(
                copy_bias, 0, alone, shared_bias, cute.local_tile(bias, (TILE[1],), (None,))
            )
            to_scale, from_scale = cpasync.tma_partition(
                copy_scale, 0, alone, shared_scale, cute.local_tile(scale, (TILE[0],), (None,))
            )
            asking = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, CONSUMERS)
            for turn in cutlass.range(begin, turns, stride, unroll=1):
                pair, column = tile_of(turn, down, across)
                row = pair * CLUSTER + rank
                extras.producer_acquire(asking)
                full = extras.producer_get_barrier(asking)
                cute.copy(copy_residual, from_more[None, row, column], to_more[None, asking.index], tma_bar_ptr=full)
                cute.copy(copy_bias, from_bias[None, column], to_bias[None, asking.index], tma_bar_ptr=full)
                cute.copy(copy_scale, from_scale[None, row], to_scale[None, asking.index], tma_bar_ptr=full)
                asking.advance()
    else:
        cute.arch.setmaxregister_increase(232)
        consumer = warp_index // 4 - 1
        mine = mma.get_slice(thread % 128)
        fragments_a = mma.make_fragment_A(mine.partition_A(shared_a))
        fragments_b = mma.make_fragment_B(mine.partition_B(shared_b))
        total = cute.make_rmem_tensor(mma.partition_shape_C(TILE[:2]), cutlass.Float32)

        # everything of the consumer's own buffers
        my_out = shared_out[None, None, consumer]
        my_aux = shared_aux[None, None, consumer]
        of_columns = cute.make_tensor(shared_bias[None, consumer].iterator, cute.make_layout(TILE[:2], stride=(0, 1)))
        of_rows = cute.make_tensor(shared_scale[None, consumer].iterator, cute.make_layout(TILE[:2], stride=(1, 0)))
        bias_of, scale_of = mine.partition_C(of_columns), mine.partition_C(of_rows)
        st = cute.make_copy_atom(warp.StMatrix8x8x16bOp(False, 4), dtype)
        ld = cute.make_copy_atom(warp.LdMatrix8x8x16bOp(False, 4), dtype)
        storing = cute.make_tiled_copy_C(st, mma).get_slice(thread % 128)
        loading = cute.make_tiled_copy_C(ld, mma).get_slice(thread % 128)
        out_slots, aux_slots = storing.partition_D(my_out), storing.partition_D(my_aux)
        more_slots = loading.partition_S(my_out)

        from_out, to_out = cpasync.tma_partition(
            copy_out,
            0,
            alone,
            cute.group_modes(shared_out, 0, 2),
            cute.group_modes(cute.local_tile(out, TILE[:2], (None, None)), 0, 2),
        )
        from_aux, to_aux = cpasync.tma_partition(
            copy_aux,
            0,
            alone,
            cute.group_modes(shared_aux, 0, 2),
            cute.group_modes(cute.local_tile(aux, (64, TILE[1]), (None, None)), 0, 2),
        )

        reading = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
        releasing = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
        taking = pipeline.PipelineState(CONSUMERS, cutlass.Int32(0), consumer, cutlass.Int32(0))
        if consumer == 1:
            reading.advance(steps)
            releasing.advance(steps)
        phase = 1 - consumer
        for turn in cutlass.range(begin + consumer * stride, turns, CONSUMERS * stride, unroll=1):
            pair, column = tile_of(turn, down, across)
            row = pair * CLUSTER + rank
            total.fill(0.0)
            mma.set(warpgroup.Field.ACCUMULATE, True)
            cute.arch.mbarrier_wait(order + consumer, phase)
            phase = 1 - phase
            for step in cutlass.range(steps, unroll=1):
                ring.consumer_wait(reading)
                warpgroup.fence()
                for part in cutlass.range_constexpr(cute.size(fragments_a, mode=[2])):
                    at = (None, None, part, reading.index)
                    cute.gemm(mma, total, fragments_a[at], fragments_b[at], total)
                warpgroup.commit_group()
                reading.advance()
                if step > 0:
                    warpgroup.wait_group(1)
                    ring.consumer_release(releasing)
                    releasing.advance()
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive(order + 1 - consumer)
            warpgroup.wait_group(0)
            ring.consumer_release(releasing)
            releasing.advance()
            reading.advance(steps)
            releasing.advance(steps)

            extras.consumer_wait(taking)
            for half in cutlass.range_constexpr(TILE[0] // 64):
                at = (None, half, None)
                before = cute.make_rmem_tensor(mma.partition_shape_C((64, TILE[1])), dtype)
                made, more = cute.make_rmem_tensor_like(before), cute.make_rmem_tensor_like(before)
                cute.copy(ld, more_slots[at], loading.retile(more)[None, 0, None])
                for i in cutlass.range(cute.size(before), unroll_full=True):
                    value = total[at][i] + bias_of[at][i].to(cutlass.Float32)
                    before[i] = value.to(dtype)
                    made[i] = (gelu(value) * scale_of[at][i] + more[i].to(cutlass.Float32)).to(dtype)
                if half > 0:
                    if warp_index % 4 == 0:
                        cute.arch.cp_async_bulk_wait_group(0, read=True)
                    cute.arch.barrier(barrier_id=1 + consumer, number_of_threads=128)
                cute.copy(st, storing.retile(before)[None, 0, None], aux_slots[None, 0, None])
                cute.copy(st, storing.retile(made)[None, 0, None], out_slots[None, half, None])
                cute.arch.fence_proxy("async.shared", space="cta")
                cute.arch.barrier(barrier_id=1 + consumer, number_of_threads=128)
                if warp_index % 4 == 0:
                    cute.copy(copy_aux, from_aux[None, consumer], to_aux[None, row * (TILE[0] // 64) + half, column])
                    if half == TILE[0] // 64 - 1:
                        cute.copy(copy_out, from_out[None, consumer], to_out[None, row, column])
                    cute.arch.cp_async_bulk_commit_group()
            if warp_index % 4 == 0:
                cute.arch.cp_async_bulk_wait_group(0, read=True)
                extras.consumer_release(taking)
            cute.arch.barrier(barrier_id=1 + consumer, number_of_threads=128)
            taking.advance(CONSUMERS)


def gemm_epilogue(a, b, bias, scale, residual):
    out, aux = torch.empty_like(residual), torch.empty_like(residual)
    tiles = -(-a.shape[0] // (TILE[0] * CLUSTER)) * -(-b.shape[1] // TILE[1])
    n_sm = torch.cuda.get_device_properties(a.device).multi_processor_count
    blocks = CLUSTER * min(tiles, n_sm // CLUSTER)
    lane.run(product, a, b.T, bias, scale, residual, aux, out, blocks)
    return out, aux
