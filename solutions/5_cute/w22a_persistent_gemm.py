"""Persistent matrix product for Hopper."""

import cutlass
import cutlass.cute as cute
import cutlass.utils.hopper_helpers as hopper
import torch
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum

from kernelpath.lanes import cute as lane

WARPGROUP = 128
DEPTH = 64
CHUNK = 64
BUFFERS = 2


@cute.jit
def tile_of(number, down, across, group: cutlass.Constexpr):
    first = number // (group * across) * group
    within = number % (group * across)
    height = cutlass.min(down - first, group)
    return first + within % height, within // height


@cute.kernel
def multiply(
    mma: cute.TiledMma,
    store_mma: cute.TiledMma,
    layouts,
    a,
    b,
    out,
    tile: cutlass.Constexpr,
    cluster: cutlass.Constexpr,
    stages: cutlass.Constexpr,
    group: cutlass.Constexpr,
):
    (of_a, of_b, of_out), (load_a, a), (load_b, b), (store, out) = layouts, a, b, out
    rows, columns = tile
    consumers = cutlass.const_expr(cute.size(mma) // WARPGROUP)
    peers = cutlass.const_expr(cluster[0] * cluster[1])
    thread, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    lane_id = thread % 32
    block, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
    here = (rank % cluster[0], rank // cluster[0])

    memory = SmemAllocator()
    full = memory.allocate_array(cutlass.Int64, stages)
    empty = memory.allocate_array(cutlass.Int64, stages)
    shared_a = memory.allocate_tensor(load_a.value_type, of_a.outer, 1024, of_a.inner)
    shared_b = memory.allocate_tensor(load_b.value_type, of_b.outer, 1024, of_b.inner)
    shared_out = memory.allocate_tensor(store.value_type, of_out.outer, 1024, of_out.inner)

    if warp == 0:
        cpasync.prefetch_descriptor(load_a)
        cpasync.prefetch_descriptor(load_b)
        cpasync.prefetch_descriptor(store)
        with cute.arch.elect_one():
            for stage in cutlass.range_constexpr(stages):
                cute.arch.mbarrier_init(full + stage, 1)
                cute.arch.mbarrier_init(empty + stage, 4 * consumers * (cluster[0] + cluster[1] - 1))
        cute.arch.mbarrier_init_fence()
    if cutlass.const_expr(peers > 1):
        cute.arch.cluster_arrive_relaxed()
        cute.arch.cluster_wait()
    else:
        cute.arch.sync_threads()

    down = cute.ceil_div(cute.size(out, mode=[0]), rows * cluster[0])
    across = cute.ceil_div(cute.size(out, mode=[1]), columns * cluster[1])
    steps = cute.ceil_div(cute.size(a, mode=[1]), DEPTH)
    tiles = down * across

    if warp < 4:
        if cutlass.const_expr(consumers > 1):
            cute.arch.setmaxregister_decrease(40)
        if warp == 0:
            tiles_a = cute.local_tile(a, (rows, DEPTH), (None, None))
            tiles_b = cute.local_tile(b, (columns, DEPTH), (None, None))
            to_a, from_a = cpasync.tma_partition(
                load_a, here[1], cute.make_layout(cluster[1]),
                cute.group_modes(shared_a, 0, 2), cute.group_modes(tiles_a, 0, 2),
            )
            to_b, from_b = cpasync.tma_partition(
                load_b, here[0], cute.make_layout(cluster[0]),
                cute.group_modes(shared_b, 0, 2), cute.group_modes(tiles_b, 0, 2),
            )
            ranks = cute.make_layout((cluster[0], cluster[1], 1))
            mask_a = cute.make_layout_image_mask(ranks, (here[0], here[1], 0), mode=1)
            mask_b = cute.make_layout_image_mask(ranks, (here[0], here[1], 0), mode=0)
            bytes_of_stage = 2 * DEPTH * (rows + columns)
            count = cutlass.Int32(0)
            for number in cutlass.range(block // peers, tiles, blocks // peers, unroll=1):
                i, j = tile_of(number, down, across, group)
                row, column = i * cluster[0] + here[0], j * cluster[1] + here[1]
                for step in cutlass.range(steps, unroll=1):
                    stage = count % stages
                    cute.arch.mbarrier_wait(empty + stage, (count // stages & 1) ^ 1)
                    with cute.arch.elect_one():
                        cute.arch.mbarrier_arrive_and_expect_tx(full + stage, bytes_of_stage)
                    cute.copy(
                        load_a, from_a[None, row, step], to_a[None, stage], tma_bar_ptr=full + stage,
                        mcast_mask=mask_a if cutlass.const_expr(cluster[1] > 1) else None,
                    )
                    cute.copy(
                        load_b, from_b[None, column, step], to_b[None, stage], tma_bar_ptr=full + stage,
                        mcast_mask=mask_b if cutlass.const_expr(cluster[0] > 1) else None,
                    )
                    count += 1
    else:
        if cutlass.const_expr(consumers > 1):
            cute.arch.setmaxregister_increase(232)
        worker = warp // 4 - 1
        leads = warp % 4 == 0
        mine = mma.get_slice(thread - WARPGROUP)
        fragments_a = mma.make_fragment_A(mine.partition_A(shared_a))
        fragments_b = mma.make_fragment_B(mine.partition_B(shared_b))
        total = cute.make_rmem_tensor(mma.partition_shape_C((rows, columns)), cutlass.Float32)
        signals = lane_id < peers and (lane_id % cluster[0] == here[0] or lane_id // cluster[0] == here[1])

        buffers = cute.local_tile(shared_out, (64, CHUNK, BUFFERS), (0, 0, worker))
        chunks = cute.local_tile(out, (64, CHUNK), (None, None))
        from_shared, to_out = cpasync.tma_partition(
            store, 0, cute.make_layout(1), cute.group_modes(buffers, 0, 2), cute.group_modes(chunks, 0, 2)
        )
        atom = hopper.sm90_get_smem_store_op(LayoutEnum.ROW_MAJOR, store.value_type, cutlass.Float32)
        to_shared = cute.make_tiled_copy_C(atom, store_mma).get_slice(thread % WARPGROUP)
        piece = cute.make_rmem_tensor(store_mma.partition_shape_C((64, CHUNK)), cutlass.Float32)
        result = cute.make_rmem_tensor_like(piece, store.value_type)

        count = cutlass.Int32(0)
        for number in cutlass.range(block // peers, tiles, blocks // peers, unroll=1):
            for step in cutlass.range(steps, unroll=1):
                stage = count % stages
                cute.arch.mbarrier_wait(full + stage, count // stages & 1)
                warpgroup.fence()
                mma.set(warpgroup.Field.ACCUMULATE, step > 0)
                for part in cutlass.range_constexpr(DEPTH // 16):
                    at = (None, None, part, stage)
                    cute.gemm(mma, total, fragments_a[at], fragments_b[at], total)
                    mma.set(warpgroup.Field.ACCUMULATE, True)
                warpgroup.commit_group()
                warpgroup.wait_group(1)
                if step > 0 and signals:
                    cute.arch.mbarrier_arrive(empty + (count - 1) % stages, lane_id)
                count += 1
            warpgroup.wait_group(0)
            if signals:
                cute.arch.mbarrier_arrive(empty + (count - 1) % stages, lane_id)

            i, j = tile_of(number, down, across, group)
            row, column = i * cluster[0] + here[0], j * cluster[1] + here[1]
            for chunk in cutlass.range_constexpr(cute.size(total) // cute.size(piece)):
                m_part, n_part = chunk // (columns // CHUNK), chunk % (columns // CHUNK)
                buffer = chunk % BUFFERS
                for e in cutlass.range_constexpr(cute.size(piece)):
                    piece[e] = total[chunk * cute.size(piece) + e]
                result.store(piece.load().to(store.value_type))
                if leads:
                    cute.arch.cp_async_bulk_wait_group(min(chunk, BUFFERS - 1), read=True)
                cute.arch.barrier(barrier_id=worker + 1, number_of_threads=WARPGROUP)
                cute.copy(atom, to_shared.retile(result), to_shared.partition_D(buffers)[None, None, None, buffer])
                cute.arch.fence_proxy("async.shared", space="cta")
                cute.arch.barrier(barrier_id=worker + 1, number_of_threads=WARPGROUP)
                if leads:
                    at = (row * (rows // 64) + m_part * consumers + worker, column * (columns // CHUNK) + n_part)
                    cute.copy(store, from_shared[None, buffer], to_out[None, at[0], at[1]])
                    cute.arch.cp_async_bulk_commit_group()
        if leads:
            cute.arch.cp_async_bulk_wait_group(0, read=True)
    if cutlass.const_expr(peers > 1):
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()


@cute.jit
def gemm(
    a: cute.Tensor,
    b: cute.Tensor,
    out: cute.Tensor,
    processors: cutlass.Int32,
    tile: cutlass.Constexpr,
    cluster: cutlass.Constexpr,
    stages: cutlass.Constexpr,
    group: cutlass.Constexpr,
) -> None:
    """out = a b^T for a [m, k], b [n, k]."""
    dtype = a.element_type
    rows, columns = tile
    order_a, order_b = LayoutEnum.from_tensor(a), LayoutEnum.from_tensor(b)
    majors = order_a.sm90_mma_major_mode(), order_b.sm90_mma_major_mode()
    consumers = min(rows // 64, 2)
    peers = cluster[0] * cluster[1]
    mma = hopper.make_trivial_tiled_mma(
        dtype, dtype, *majors, cutlass.Float32, (consumers, 1, 1), tiler_mn=(64, columns)
    )
    store_mma = hopper.make_trivial_tiled_mma(
        dtype, dtype, *majors, cutlass.Float32, (1, 1, 1), tiler_mn=(64, CHUNK)
    )
    block = (rows, columns, DEPTH)
    of_a = hopper.make_smem_layout_a(order_a, block, dtype, stages)
    of_b = hopper.make_smem_layout_b(order_b, block, dtype, stages)
    of_out = hopper.make_smem_layout_epi(dtype, LayoutEnum.ROW_MAJOR, (64, CHUNK), BUFFERS * consumers)
    one = (None, None, 0)
    alone, shared = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileG2SMulticastOp()
    tiles = cute.ceil_div(out.shape[0], rows * cluster[0]) * cute.ceil_div(out.shape[1], columns * cluster[1])
    multiply(
        mma,
        store_mma,
        (of_a, of_b, of_out),
        cpasync.make_tiled_tma_atom(
            shared if cluster[1] > 1 else alone, a, cute.slice_(of_a, one), (rows, DEPTH), num_multicast=cluster[1]
        ),
        cpasync.make_tiled_tma_atom(
            shared if cluster[0] > 1 else alone, b, cute.slice_(of_b, one), (columns, DEPTH), num_multicast=cluster[0]
        ),
        cpasync.make_tiled_tma_atom(
            cpasync.CopyBulkTensorTileS2GOp(), out, cute.slice_(of_out, one), (64, CHUNK)
        ),
        tile,
        cluster,
        stages,
        group,
    ).launch(
        grid=[cutlass.min(processors // peers, tiles) * peers, 1, 1],
        block=[WARPGROUP * (1 + consumers), 1, 1],
        cluster=[peers, 1, 1],
        min_blocks_per_mp=1,
    )


def matmul(a: torch.Tensor, b: torch.Tensor, tile=(128, 256), cluster=(2, 1), stages=4, group=8) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n)
    processors = torch.cuda.get_device_properties(a.device if a.is_cuda else None).multi_processor_count
    lane.run(gemm, a, b.T, out, processors, tile, cluster, stages, group)
    return out
