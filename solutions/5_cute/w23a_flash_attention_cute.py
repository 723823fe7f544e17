"""Attention forward for Hopper.

(to be written)
"""

import math
from typing import NamedTuple

import cutlass
import cutlass.cute as cute
import cutlass.utils.hopper_helpers as hopper
import torch
from cutlass import pipeline
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum

from kernelpath.lanes import cute as lane

LOG2_E, LN_2 = math.log2(math.e), math.log(2)
ROWS = 64
"""Queries of a consumer: the rows of its wgmma."""


class Plan(NamedTuple):
    """What is compiled in. keys: of a tile; stages: of the ring that brings tiles of keys and values in turn."""

    causal: bool
    head: int
    keys: int
    consumers: int
    stages: int
    persistent: bool = True
    ping_pong: bool = True
    overlap: bool = True
    own_out: bool = True
    chains: int = 1
    section: int = 16


@cute.jit
def forward(
    q: cute.Tensor,
    k: cute.Tensor,
    v: cute.Tensor,
    out: cute.Tensor,
    lse: cute.Tensor,
    multiprocessors: cutlass.Int32,
    plan: cutlass.Constexpr,
) -> None:
    """q and out [heads, tokens, head], k and v [kv_heads, tokens, head], lse [heads, tokens]."""
    rows = LayoutEnum.ROW_MAJOR
    along, across = rows.sm90_mma_major_mode(), LayoutEnum.COL_MAJOR.sm90_mma_major_mode()
    BF16, F32 = cutlass.BFloat16, cutlass.Float32
    qk = hopper.make_trivial_tiled_mma(BF16, BF16, along, along, F32, (1, 1, 1), (ROWS, plan.keys))
    pv = hopper.make_trivial_tiled_mma(
        BF16, BF16, along, across, F32, (1, 1, 1), (ROWS, plan.head), warpgroup.OperandSource.RMEM
    )
    tile_qk, tile_pv = (ROWS, plan.keys, plan.head), (ROWS, plan.head, plan.keys)
    of_q = hopper.make_smem_layout_a(rows, tile_qk, BF16, plan.consumers)
    of_k = hopper.make_smem_layout_b(rows, tile_qk, BF16, plan.stages)
    of_v = hopper.make_smem_layout_b(LayoutEnum.COL_MAJOR, tile_pv, BF16, plan.stages)
    one = (None, None, 0)
    load, store = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileS2GOp()
    q, k, v, out = (cute.make_tensor(x.iterator, cute.select(x.layout, mode=[1, 2, 0])) for x in (q, k, v, out))
    of_kv = cute.slice_(of_k, one)
    blocks = cute.ceil_div(q.shape[0], ROWS * plan.consumers)
    tiles = blocks * q.shape[2]
    grid = cutlass.min(tiles, multiprocessors) if cutlass.const_expr(plan.persistent) else tiles
    attend(
        (qk, hopper.make_trivial_tiled_mma(BF16, BF16, along, along, F32, (1, 1, 1), (ROWS, plan.keys))),
        pv,
        (of_q, of_k, of_v),
        cpasync.make_tiled_tma_atom(load, q, cute.slice_(of_q, one), (ROWS, plan.head)),
        cpasync.make_tiled_tma_atom(load, k, of_kv, (plan.keys, plan.head)),
        cpasync.make_tiled_tma_atom(load, v, of_kv, (plan.keys, plan.head)),
        cpasync.make_tiled_tma_atom(store, out, cute.slice_(of_q, one), (ROWS, plan.head)),
        lse,
        q.shape[2] // k.shape[2],
        blocks,
        plan,
    ).launch(grid=[grid, 1, 1], block=[(1 + plan.consumers) * 128, 1, 1])


@cute.kernel
def attend(qk, pv, layouts, q, k, v, out, lse, group, blocks, plan: cutlass.Constexpr):
    (of_q, of_k, of_v), (copy_q, q), (copy_k, k), (copy_v, v), (copy_out, out) = layouts, q, k, v, out
    BF16, F32 = cutlass.BFloat16, cutlass.Float32
    fresh_qk, qk = qk, qk[0]
    fresh_qk[0].set(warpgroup.Field.ACCUMULATE, False)
    fresh_qk[1].set(warpgroup.Field.ACCUMULATE, True)
    pv.set(warpgroup.Field.ACCUMULATE, True)
    thread, _, _ = cute.arch.thread_idx()
    block_index, _, _ = cute.arch.block_idx()
    grid, _, _ = cute.arch.grid_dim()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    tokens, heads = q.shape[0], q.shape[2]
    tiles = blocks * heads
    rounds = cute.ceil_div(tiles, grid)

    memory = SmemAllocator()
    barriers_q = memory.allocate_array(cutlass.Int64, 2 * plan.consumers)
    barriers_kv = memory.allocate_array(cutlass.Int64, 2 * plan.stages)
    shared_q = memory.allocate_tensor(BF16, of_q.outer, 1024, of_q.inner)
    shared_k = memory.allocate_tensor(BF16, of_k.outer, 1024, of_k.inner)
    shared_v = cute.make_tensor(cute.recast_ptr(shared_k.iterator, of_v.inner), of_v.outer)
    shared_out = shared_q
    if cutlass.const_expr(plan.own_out):
        shared_out = memory.allocate_tensor(BF16, of_q.outer, 1024, of_q.inner)

    one_thread, alone = pipeline.CooperativeGroup(pipeline.Agent.Thread), cute.make_layout(1)
    queries = pipeline.PipelineTmaAsync.create(
        barrier_storage=barriers_q,
        num_stages=plan.consumers,
        producer_group=one_thread,
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 4),
        tx_count=cute.size_in_bytes(BF16, cute.slice_(of_q, (None, None, 0))),
        cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)),
        defer_sync=True,
    )
    ring = pipeline.PipelineTmaAsync.create(
        barrier_storage=barriers_kv,
        num_stages=plan.stages,
        producer_group=one_thread,
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 4 * plan.consumers),
        tx_count=cute.size_in_bytes(BF16, cute.slice_(of_k, (None, None, 0))),
        cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)),
        defer_sync=True,
    )
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()

    if warp < 4:
        if cutlass.const_expr(plan.consumers > 1):
            cute.arch.setmaxregister_decrease(24 if plan.consumers == 2 else 32)
        if warp == 0:
            tiles_q = cute.local_tile(q, (ROWS, plan.head), (None, 0, None))
            tiles_k = cute.local_tile(k, (plan.keys, plan.head), (None, 0, None))
            tiles_v = cute.local_tile(v, (plan.keys, plan.head), (None, 0, None))
            to_q, from_q = cpasync.tma_partition(
                copy_q, 0, alone, cute.group_modes(shared_q, 0, 2), cute.group_modes(tiles_q, 0, 2)
            )
            to_k, from_k = cpasync.tma_partition(
                copy_k, 0, alone, cute.group_modes(shared_k, 0, 2), cute.group_modes(tiles_k, 0, 2)
            )
            to_v, from_v = cpasync.tma_partition(
                copy_v, 0, alone, cute.group_modes(shared_k, 0, 2), cute.group_modes(tiles_v, 0, 2)
            )
            filling_q = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, plan.consumers)
            filling = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, plan.stages)
            for turn in cutlass.range(rounds, unroll=1):
                tile = turn * grid + (block_index if turn % 2 == 0 else grid - 1 - block_index)
                if tile < tiles:
                    head, block = place(tile, blocks, heads, plan)
                    count = key_tiles(block, tokens, plan)
                    for part in cutlass.range_constexpr(plan.consumers):
                        queries.producer_acquire(filling_q)
                        cute.copy(
                            copy_q,
                            from_q[None, block * plan.consumers + part, head],
                            to_q[None, filling_q.index],
                            tma_bar_ptr=queries.producer_get_barrier(filling_q),
                        )
                        filling_q.advance()
                    for step in cutlass.range(count + 1, unroll=1):
                        if step < count:
                            ring.producer_acquire(filling)
                            cute.copy(
                                copy_k,
                                from_k[None, step, head // group],
                                to_k[None, filling.index],
                                tma_bar_ptr=ring.producer_get_barrier(filling),
                            )
                            filling.advance()
                        if step > 0:
                            ring.producer_acquire(filling)
                            cute.copy(
                                copy_v,
                                from_v[None, step - 1, head // group],
                                to_v[None, filling.index],
                                tma_bar_ptr=ring.producer_get_barrier(filling),
                            )
                            filling.advance()
    else:
        if cutlass.const_expr(plan.consumers > 1):
            cute.arch.setmaxregister_increase(240 if plan.consumers == 2 else 160)
        part = warp // 4 - 1
        mine = thread % 128
        in_qk, in_pv = qk.get_slice(mine), pv.get_slice(mine)
        frag_q = qk.make_fragment_A(in_qk.partition_A(shared_q))
        frag_k = qk.make_fragment_B(in_qk.partition_B(shared_k))
        frag_v = pv.make_fragment_B(in_pv.partition_B(shared_v))
        scores = cute.make_rmem_tensor(qk.partition_shape_C((ROWS, plan.keys)), F32)
        sums = cute.make_rmem_tensor(pv.partition_shape_C((ROWS, plan.head)), F32)
        weights = cute.make_rmem_tensor(pv.partition_shape_A((ROWS, plan.keys)), BF16)
        at = in_qk.partition_C(cute.make_identity_tensor((ROWS, plan.keys)))
        at_row, at_key = at[0][0], at[0][1]
        top, total, shrink = (cute.make_rmem_tensor(2, F32) for _ in range(3))
        of_store = hopper.sm90_get_smem_store_op(LayoutEnum.ROW_MAJOR, BF16, F32)
        to_shared = cute.make_tiled_copy_C(of_store, pv).get_slice(mine)
        tiles_out = cute.local_tile(out, (ROWS, plan.head), (None, 0, None))
        from_shared, to_out = cpasync.tma_partition(
            copy_out, 0, alone, cute.group_modes(shared_out, 0, 2), cute.group_modes(tiles_out, 0, 2)
        )
        reading_q = pipeline.PipelineState(plan.consumers, cutlass.Int32(0), part, cutlass.Int32(0))
        reading = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, plan.stages)
        if cutlass.const_expr(plan.ping_pong):
            if part == plan.consumers - 1:
                cute.arch.barrier_arrive(barrier_id=1, number_of_threads=256)
        for turn in cutlass.range(rounds, unroll=1):
            tile = turn * grid + (block_index if turn % 2 == 0 else grid - 1 - block_index)
            if tile < tiles:
                head, block = place(tile, blocks, heads, plan)
                count = key_tiles(block, tokens, plan)
                begin = (block * plan.consumers + part) * ROWS
                whole = cutlass.min((begin if cutlass.const_expr(plan.causal) else tokens) // plan.keys, count)
                row = begin + at_row
                sums.fill(0.0)
                total.fill(0.0)
                top.fill(-cutlass.Float32.inf)
                queries.consumer_wait(reading_q)
                ring.consumer_wait(reading)
                multiply_fresh(fresh_qk, scores, frag_q[None, None, None, part], frag_k[None, None, None, reading.index])
                warpgroup.wait_group(0)
                ring.consumer_release(reading)
                reading.advance()
                soften(scores, top, total, shrink, 0, at_key, row, tokens, True, plan)
                ring.consumer_wait(reading)
                cute.make_tensor(weights.iterator, scores.layout).store(scores.load().to(BF16))
                for step in cutlass.range(1, cutlass.max(whole, 1), unroll=1):
                    reading = overlap(
                        fresh_qk, pv, ring, reading, frag_q, frag_k, frag_v, scores, weights, sums, top, total, shrink,
                        part, step, at_key, row, tokens, False, plan,
                    )  # fmt: skip
                for step in cutlass.range(cutlass.max(whole, 1), count, unroll=1):
                    reading = overlap(
                        fresh_qk, pv, ring, reading, frag_q, frag_k, frag_v, scores, weights, sums, top, total, shrink,
                        part, step, at_key, row, tokens, True, plan,
                    )  # fmt: skip
                if cutlass.const_expr(plan.own_out):
                    queries.consumer_release(reading_q)
                warpgroup.fence()
                multiply(pv, sums, weights, frag_v[None, None, None, reading.index])
                warpgroup.wait_group(0)
                ring.consumer_release(reading)
                reading.advance()
                finish(sums, top, total, lse, head, row, tokens, plan)
                result = cute.make_rmem_tensor_like(sums, BF16)
                result.store(sums.load().to(BF16))
                # The last store has read the buffer before it is written again.
                if cutlass.const_expr(plan.own_out):
                    if warp % 4 == 0:
                        cute.arch.cp_async_bulk_wait_group(0, read=True)
                cute.arch.barrier(barrier_id=4 + part, number_of_threads=128)
                cute.copy(of_store, to_shared.retile(result), to_shared.partition_D(shared_out)[None, None, None, part])
                cute.arch.fence_proxy("async.shared", space="cta")
                cute.arch.barrier(barrier_id=4 + part, number_of_threads=128)
                if warp % 4 == 0:
                    cute.copy(copy_out, from_shared[None, part], to_out[None, block * plan.consumers + part, head])
                    cute.arch.cp_async_bulk_commit_group()
                    if cutlass.const_expr(not plan.own_out):
                        cute.arch.cp_async_bulk_wait_group(0, read=True)
                if cutlass.const_expr(not plan.own_out):
                    queries.consumer_release(reading_q)
                reading_q.advance(plan.consumers)
        if warp % 4 == 0:
            cute.arch.cp_async_bulk_wait_group(0, read=True)


@cute.jit
def place(tile, blocks, heads, plan: cutlass.Constexpr):
    """The head and the block of queries of a tile."""
    head, block = tile // blocks, tile % blocks
    if cutlass.const_expr(plan.causal):
        first = tile // (plan.section * blocks) * plan.section
        width = cutlass.min(plan.section, heads - first)
        turn = tile - first * blocks
        head, block = first + turn % width, blocks - 1 - turn // width
    return head, block


@cute.jit
def key_tiles(block, tokens, plan: cutlass.Constexpr):
    last = tokens
    if cutlass.const_expr(plan.causal):
        last = cutlass.min((block + 1) * ROWS * plan.consumers, tokens)
    return cute.ceil_div(last, plan.keys)


@cute.jit
def multiply(mma, sums, a, b):
    for k in cutlass.range_constexpr(cute.size(a, mode=[2])):
        cute.gemm(mma, sums, a[None, None, k], b[None, None, k], sums)
    warpgroup.commit_group()


@cute.jit
def multiply_fresh(fresh_mma, sums, a, b):
    warpgroup.fence()
    fresh, mma = fresh_mma
    for k in cutlass.range_constexpr(cute.size(a, mode=[2])):
        cute.gemm(mma if k else fresh, sums, a[None, None, k], b[None, None, k], sums)
    warpgroup.commit_group()


@cute.jit
def overlap(
    fresh_qk, pv, ring, reading, frag_q, frag_k, frag_v, scores, weights, sums, top, total, shrink,
    part, step, at_key, row, tokens, masked: cutlass.Constexpr, plan: cutlass.Constexpr,
):  # fmt: skip
    scores = cute.make_rmem_tensor_like(scores)  # a new one: nothing of the last tile is kept for it
    of_keys, of_values = reading.clone(), reading.clone()
    of_values.advance()
    if cutlass.const_expr(plan.ping_pong):
        cute.arch.barrier(barrier_id=1 + part, number_of_threads=256)
    multiply_fresh(fresh_qk, scores, frag_q[None, None, None, part], frag_k[None, None, None, of_keys.index])
    ring.consumer_wait(of_values)
    multiply(pv, sums, weights, frag_v[None, None, None, of_values.index])
    if cutlass.const_expr(plan.ping_pong):
        cute.arch.barrier_arrive(barrier_id=1 + (part + 1) % plan.consumers, number_of_threads=256)
    warpgroup.wait_group(1 if plan.overlap else 0)
    ring.consumer_release(of_keys)
    soften(scores, top, total, shrink, step * plan.keys, at_key, row, tokens, masked, plan)
    reading.advance(2)
    ring.consumer_wait(reading)  # before the next: ptxas moves no wait for wgmma up past this one
    warpgroup.wait_group(0)
    ring.consumer_release(of_values)
    cute.make_tensor(weights.iterator, scores.layout).store(scores.load().to(cutlass.BFloat16))
    view = by_row(sums)
    for r in cutlass.range_constexpr(2):
        view[r, None].store(view[r, None].load() * shrink[r])
    return reading


@cute.jit
def by_row(sums):
    """The sums of a thread as (2 rows, columns)."""
    return cute.make_tensor(sums.iterator, cute.make_layout((2, (2, cute.size(sums) // 4)), stride=(2, (1, 4))))


@cute.jit
def soften(
    scores, top, total, shrink, first, at_key, row, tokens, masked: cutlass.Constexpr, plan: cutlass.Constexpr
):
    scale = LOG2_E / math.sqrt(plan.head)
    view = by_row(scores)
    if cutlass.const_expr(masked):
        # Column by column: the predicates of a row would not fit into the seven registers that there are.
        for i in cutlass.range_constexpr(cute.size(view, mode=[1])):
            for r in cutlass.range_constexpr(2):
                end = row + 8 * r + 1 if cutlass.const_expr(plan.causal) else tokens
                hidden = i // 2 * 8 + i % 2 >= end - first - at_key
                view[r, i] = -cutlass.Float32.inf if hidden else view[r, i]
    for r in cutlass.range_constexpr(2):
        best = [top[r]] + [view[r, i] for i in range(1, plan.chains)]
        for i in cutlass.range_constexpr(cute.size(view, mode=[1])):
            best[i % plan.chains] = cute.arch.fmax(best[i % plan.chains], view[r, i])
        largest = best[0]
        for i in cutlass.range_constexpr(1, plan.chains):
            largest = cute.arch.fmax(largest, best[i])
        largest = cute.arch.warp_reduction_max(largest, threads_in_group=4)
        shrink[r] = cute.math.exp2((top[r] - largest) * scale, fastmath=True)
        top[r] = largest
        base = largest * scale
        view[r, None].store(cute.math.exp2(view[r, None].load() * scale - base, fastmath=True))
        added = [total[r] * shrink[r]] + [cutlass.Float32(0.0)] * (plan.chains - 1)
        for i in cutlass.range_constexpr(cute.size(view, mode=[1])):
            added[i % plan.chains] = added[i % plan.chains] + view[r, i]
        for i in cutlass.range_constexpr(1, plan.chains):
            added[0] = added[0] + added[i]
        total[r] = added[0]


@cute.jit
def finish(sums, top, total, lse, head, row, tokens, plan: cutlass.Constexpr):
    scale = LOG2_E / math.sqrt(plan.head)
    view = by_row(sums)
    lane = cute.arch.lane_idx()
    for r in cutlass.range_constexpr(2):
        whole = cute.arch.warp_reduction_sum(total[r], threads_in_group=4)
        view[r, None].store(view[r, None].load() * cute.arch.rcp_approx(whole))
        if lane % 4 == 0 and row + 8 * r < tokens:
            lse[head, row + 8 * r] = (top[r] * scale + cute.math.log2(whole, fastmath=True)) * LN_2


PLANS = {
    64: Plan(False, 64, 128, 3, 8),
    128: Plan(False, 128, 128, 2, 5),
}


def flash_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    out, lse = torch.empty_like(q), q.new_empty(q.shape[:-1], dtype=torch.float32)
    plan = PLANS[q.shape[3]]._replace(causal=causal)
    multiprocessors = torch.cuda.get_device_properties(q.device).multi_processor_count
    lane.run(
        forward, q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), out.flatten(0, 1), lse.flatten(0, 1),
        multiprocessors, plan,
    )  # fmt: skip
    return out, lse
