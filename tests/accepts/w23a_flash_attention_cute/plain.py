"""One tile of queries a block, one tile of keys after the other, a mask on each; nothing overlaps but copies."""

import math
from functools import partial

import cutlass
import cutlass.cute as cute
import cutlass.utils.hopper_helpers as hopper
import torch
from cutlass import pipeline
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum

from kernelpath.lanes import cute as lane

ROWS, KEYS, CONSUMERS, STAGES = 64, 64, 2, 4
BF16, F32 = cutlass.BFloat16, cutlass.Float32


@cute.jit
def forward(q, k, v, out, lse, head: cutlass.Constexpr, causal: cutlass.Constexpr):
    q, k, v, out = (cute.make_tensor(x.iterator, cute.select(x.layout, mode=[1, 2, 0])) for x in (q, k, v, out))
    rows, columns = LayoutEnum.ROW_MAJOR, LayoutEnum.COL_MAJOR
    of_q = hopper.make_smem_layout_a(rows, (ROWS, KEYS, head), BF16, CONSUMERS)
    of_k = hopper.make_smem_layout_b(rows, (ROWS, KEYS, head), BF16, STAGES)
    of_v = hopper.make_smem_layout_b(columns, (ROWS, head, KEYS), BF16, STAGES)
    box_q, box_kv = cute.select(of_q, mode=[0, 1]), cute.select(of_k, mode=[0, 1])
    load, store = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileS2GOp()
    attend(
        cpasync.make_tiled_tma_atom(load, q, box_q, (ROWS, head)),
        cpasync.make_tiled_tma_atom(load, k, box_kv, (KEYS, head)),
        cpasync.make_tiled_tma_atom(load, v, box_kv, (KEYS, head)),
        cpasync.make_tiled_tma_atom(store, out, box_q, (ROWS, head)),
        (of_q, of_k, of_v),
        lse,
        q.shape[2] // k.shape[2],
        head,
        causal,
    ).launch(
        grid=[cute.ceil_div(q.shape[0], ROWS * CONSUMERS) * q.shape[2], 1, 1],
        block=[(CONSUMERS + 1) * 128, 1, 1],
    )


@cute.kernel
def attend(q, k, v, out, layouts, lse, group, head: cutlass.Constexpr, causal: cutlass.Constexpr):
    (copy_q, q), (copy_k, k), (copy_v, v), (copy_out, out), (of_q, of_k, of_v) = q, k, v, out, layouts
    thread, _, _ = cute.arch.thread_idx()
    index, _, _ = cute.arch.block_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    tokens = q.shape[0]
    blocks = cute.ceil_div(tokens, ROWS * CONSUMERS)
    query_head, block = index // blocks, index % blocks
    last = tokens
    if cutlass.const_expr(causal):
        last = cutlass.min((block + 1) * ROWS * CONSUMERS, tokens)
    tiles = cute.ceil_div(last, KEYS)
    key_head = query_head // group

    memory = SmemAllocator()
    whole = memory.allocate_array(cutlass.Int64, 2)
    barriers = memory.allocate_array(cutlass.Int64, 2 * STAGES)
    shared_q = memory.allocate_tensor(BF16, of_q.outer, 1024, of_q.inner)
    shared_k = memory.allocate_tensor(BF16, of_k.outer, 1024, of_k.inner)
    shared_v = cute.make_tensor(cute.recast_ptr(shared_k.iterator, of_v.inner), of_v.outer)
    create = partial(
        pipeline.PipelineTmaAsync.create,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 4 * CONSUMERS),
        cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)),
    )
    queries = create(barrier_storage=whole, num_stages=1, tx_count=cute.size_in_bytes(BF16, of_q))
    ring = create(
        barrier_storage=barriers,
        num_stages=STAGES,
        tx_count=cute.size_in_bytes(BF16, cute.select(of_k, mode=[0, 1])),
    )
    partition = partial(cpasync.tma_partition, cta_coord=0, cta_layout=cute.make_layout(1))

    if warp == 0:
        from_q = cute.group_modes(cute.local_tile(q, (ROWS, head), (None, 0, query_head)), 0, 2)
        from_k = cute.group_modes(cute.local_tile(k, (KEYS, head), (None, 0, key_head)), 0, 2)
        from_v = cute.group_modes(cute.local_tile(v, (KEYS, head), (None, 0, key_head)), 0, 2)
        to_q, from_q = partition(copy_q, smem_tensor=cute.group_modes(shared_q, 0, 2), gmem_tensor=from_q)
        to_k, from_k = partition(copy_k, smem_tensor=cute.group_modes(shared_k, 0, 2), gmem_tensor=from_k)
        to_v, from_v = partition(copy_v, smem_tensor=cute.group_modes(shared_k, 0, 2), gmem_tensor=from_v)
        once = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, 1)
        queries.producer_acquire(once)
        for part in cutlass.range_constexpr(CONSUMERS):
            barrier = queries.producer_get_barrier(once)
            cute.copy(copy_q, from_q[None, block * CONSUMERS + part], to_q[None, part], tma_bar_ptr=barrier)
        filling = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, STAGES)
        for tile in cutlass.range(tiles, unroll=1):
            ring.producer_acquire(filling)
            barrier = ring.producer_get_barrier(filling)
            cute.copy(copy_k, from_k[None, tile], to_k[None, filling.index], tma_bar_ptr=barrier)
            filling.advance()
            ring.producer_acquire(filling)
            barrier = ring.producer_get_barrier(filling)
            cute.copy(copy_v, from_v[None, tile], to_v[None, filling.index], tma_bar_ptr=barrier)
            filling.advance()
    elif warp >= 4:
        part, mine = warp // 4 - 1, thread % 128
        along, across = LayoutEnum.ROW_MAJOR.sm90_mma_major_mode(), LayoutEnum.COL_MAJOR.sm90_mma_major_mode()
        make = partial(hopper.make_trivial_tiled_mma, BF16, BF16, along)
        qk = make(along, F32, (1, 1, 1), (ROWS, KEYS))
        pv = make(across, F32, (1, 1, 1), (ROWS, head), warpgroup.OperandSource.RMEM)
        qk.set(warpgroup.Field.ACCUMULATE, True)
        pv.set(warpgroup.Field.ACCUMULATE, True)
        in_qk, in_pv = qk.get_slice(mine), pv.get_slice(mine)
        a = qk.make_fragment_A(in_qk.partition_A(shared_q))
        b = qk.make_fragment_B(in_qk.partition_B(shared_k))
        values = pv.make_fragment_B(in_pv.partition_B(shared_v))
        scores = cute.make_rmem_tensor(qk.partition_shape_C((ROWS, KEYS)), F32)
        weights = cute.make_rmem_tensor(pv.partition_shape_A((ROWS, KEYS)), BF16)
        sums = cute.make_rmem_tensor(pv.partition_shape_C((ROWS, head)), F32)
        at = in_qk.partition_C(cute.make_identity_tensor((ROWS, KEYS)))
        first = (block * CONSUMERS + part) * ROWS
        row, column = first + at[0][0], at[0][1]
        top, total = cute.make_rmem_tensor(2, F32), cute.make_rmem_tensor(2, F32)
        top.fill(-cutlass.Float32.inf)
        total.fill(0.0)
        sums.fill(0.0)
        scale = math.log2(math.e) / math.sqrt(head)

        reading_q = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, 1)
        reading = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
        queries.consumer_wait(reading_q)
        for tile in cutlass.range(tiles, unroll=1):
            ring.consumer_wait(reading)
            scores.fill(0.0)
            warpgroup.fence()
            for step in cutlass.range_constexpr(cute.size(a, mode=[2])):
                cute.gemm(qk, scores, a[None, None, step, part], b[None, None, step, reading.index], scores)
            warpgroup.commit_group()
            warpgroup.wait_group(0)
            ring.consumer_release(reading)
            reading.advance()

            by_row = rows_of(scores)
            out_by_row = rows_of(sums)
            for r in cutlass.range_constexpr(2):
                end = tokens
                if cutlass.const_expr(causal):
                    end = row + 8 * r + 1
                largest = top[r]
                for i in cutlass.range_constexpr(cute.size(by_row, mode=[1])):
                    if tile * KEYS + column + i // 2 * 8 + i % 2 >= end:
                        by_row[r, i] = -cutlass.Float32.inf
                    largest = cute.arch.fmax(largest, by_row[r, i])
                largest = cute.arch.warp_reduction_max(largest, threads_in_group=4)
                shrink = cute.math.exp2((top[r] - largest) * scale, fastmath=True)
                share = cute.math.exp2((by_row[r, None].load() - largest) * scale, fastmath=True)
                by_row[r, None].store(share)
                total[r] = total[r] * shrink + share.reduce(cute.ReductionOp.ADD, cutlass.Float32(0.0), 0)
                out_by_row[r, None].store(out_by_row[r, None].load() * shrink)
                top[r] = largest
            cute.make_tensor(weights.iterator, scores.layout).store(scores.load().to(BF16))

            ring.consumer_wait(reading)
            warpgroup.fence()
            for step in cutlass.range_constexpr(cute.size(weights, mode=[2])):
                cute.gemm(pv, sums, weights[None, None, step], values[None, None, step, reading.index], sums)
            warpgroup.commit_group()
            warpgroup.wait_group(0)
            ring.consumer_release(reading)
            reading.advance()

        out_by_row = rows_of(sums)
        for r in cutlass.range_constexpr(2):
            whole_row = cute.arch.warp_reduction_sum(total[r], threads_in_group=4)
            out_by_row[r, None].store(out_by_row[r, None].load() / whole_row)
            if column == 0 and row + 8 * r < tokens:
                lse[query_head, row + 8 * r] = (top[r] * scale + cute.math.log2(whole_row)) * math.log(2)
        result = cute.make_rmem_tensor_like(sums, BF16)
        result.store(sums.load().to(BF16))
        atom = hopper.sm90_get_smem_store_op(LayoutEnum.ROW_MAJOR, BF16, F32)
        to_shared = cute.make_tiled_copy_C(atom, pv).get_slice(mine)
        cute.copy(atom, to_shared.retile(result), to_shared.partition_D(shared_q)[None, None, None, part])
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.barrier(barrier_id=1 + part, number_of_threads=128)
        if warp % 4 == 0:
            tiles_out = cute.group_modes(cute.local_tile(out, (ROWS, head), (None, 0, query_head)), 0, 2)
            from_shared, to_out = partition(
                copy_out, smem_tensor=cute.group_modes(shared_q, 0, 2), gmem_tensor=tiles_out
            )
            cute.copy(copy_out, from_shared[None, part], to_out[None, block * CONSUMERS + part])
            cute.arch.cp_async_bulk_commit_group()
            cute.arch.cp_async_bulk_wait_group(0, read=True)


@cute.jit
def rows_of(sums):
    """A thread's part of an accumulator as (2 rows, columns)."""
    return cute.make_tensor(sums.iterator, cute.make_layout((2, (2, cute.size(sums) // 4)), stride=(2, (1, 4))))


def flash_attention(q, k, v, causal):
    out, lse = torch.empty_like(q), q.new_empty(q.shape[:-1], dtype=torch.float32)
    flat = (x.flatten(0, 1) for x in (q, k, v, out, lse))
    lane.run(forward, *flat, q.shape[3], causal)
    return out, lse
