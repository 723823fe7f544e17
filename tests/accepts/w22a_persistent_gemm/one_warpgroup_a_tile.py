"""Not persistent: a block of one warpgroup for each tile of 128 x 128, whose first warp also copies.

Sums are stored from registers, each where it is inside. Operands are copied to rows of 16 bytes where they have none.
"""

import cutlass
import cutlass.cute as cute
import cutlass.pipeline as pipeline
import cutlass.utils.hopper_helpers as sm90
import torch
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.utils import LayoutEnum, SmemAllocator

from kernelpath.lanes import cute as lane

BM, BN, BK, STAGES = 128, 128, 64, 4


@cute.kernel
def gemm_kernel(tiled_mma, sA_layout, sB_layout, tma_a, mA, tma_b, mB, mC: cute.Tensor):
    tidx, _, _ = cute.arch.thread_idx()
    bm, bn, _ = cute.arch.block_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    smem = SmemAllocator()
    bars = smem.allocate_array(cutlass.Int64, 2 * STAGES)
    sA = smem.allocate_tensor(cutlass.BFloat16, sA_layout.outer, 1024, sA_layout.inner)
    sB = smem.allocate_tensor(cutlass.BFloat16, sB_layout.outer, 1024, sB_layout.inner)
    gA = cute.local_tile(mA, (BM, BK), (bm, None))
    gB = cute.local_tile(mB, (BN, BK), (bn, None))
    one = cute.make_layout(1)
    tAsA, tAgA = cpasync.tma_partition(tma_a, 0, one, cute.group_modes(sA, 0, 2), cute.group_modes(gA, 0, 2))
    tBsB, tBgB = cpasync.tma_partition(tma_b, 0, one, cute.group_modes(sB, 0, 2), cute.group_modes(gB, 0, 2))
    pipe = pipeline.PipelineTmaAsync.create(
        barrier_storage=bars,
        num_stages=STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 4),
        tx_count=2 * BK * (BM + BN),
        cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)),
    )
    write = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, STAGES)
    read = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
    thr = tiled_mma.get_slice(tidx)
    tCrA = tiled_mma.make_fragment_A(thr.partition_A(sA))
    tCrB = tiled_mma.make_fragment_B(thr.partition_B(sB))
    acc = cute.make_rmem_tensor(tiled_mma.partition_shape_C((BM, BN)), cutlass.Float32)
    acc.fill(0.0)
    k_tiles = cute.size(gA, mode=[2])
    for k in cutlass.range(k_tiles + STAGES - 1, unroll=1):
        if warp == 0 and k < k_tiles:
            pipe.producer_acquire(write)
            bar = pipe.producer_get_barrier(write)
            cute.copy(tma_a, tAgA[None, k], tAsA[None, write.index], tma_bar_ptr=bar)
            cute.copy(tma_b, tBgB[None, k], tBsB[None, write.index], tma_bar_ptr=bar)
            write.advance()
        if k >= STAGES - 1:
            pipe.consumer_wait(read)
            warpgroup.fence()
            tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
            for block in cutlass.range_constexpr(BK // 16):
                at = (None, None, block, read.index)
                cute.gemm(tiled_mma, acc, tCrA[at], tCrB[at], acc)
            warpgroup.commit_group()
            warpgroup.wait_group(0)
            pipe.consumer_release(read)
            read.advance()
    where = thr.partition_C(cute.local_tile(cute.make_identity_tensor(mC.shape), (BM, BN), (bm, bn)))
    for i in cutlass.range_constexpr(cute.size(acc)):
        if cute.elem_less(where[i], mC.shape):
            mC[where[i]] = acc[i].to(cutlass.BFloat16)


@cute.jit
def gemm(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
    la, lb = LayoutEnum.from_tensor(a), LayoutEnum.from_tensor(b)
    dtype = cutlass.BFloat16
    mma = sm90.make_trivial_tiled_mma(
        dtype, dtype, la.sm90_mma_major_mode(), lb.sm90_mma_major_mode(), cutlass.Float32, (1, 1, 1), (64, BN)
    )
    sA = sm90.make_smem_layout_a(la, (BM, BN, BK), dtype, STAGES)
    sB = sm90.make_smem_layout_b(lb, (BM, BN, BK), dtype, STAGES)
    load = cpasync.CopyBulkTensorTileG2SOp()
    tma_a, mA = cpasync.make_tiled_tma_atom(load, a, cute.slice_(sA, (None, None, 0)), (BM, BK))
    tma_b, mB = cpasync.make_tiled_tma_atom(load, b, cute.slice_(sB, (None, None, 0)), (BN, BK))
    grid = [cute.ceil_div(c.shape[0], BM), cute.ceil_div(c.shape[1], BN), 1]
    gemm_kernel(mma, sA, sB, tma_a, mA, tma_b, mB, c).launch(grid=grid, block=[128, 1, 1])


@cute.kernel
def pad_kernel(x: cute.Tensor, y: cute.Tensor):
    t, _, _ = cute.arch.thread_idx()
    i, j, _ = cute.arch.block_idx()
    column = j * 128 + t
    if column < x.shape[1]:
        y[i, column] = x[i, column]


@cute.jit
def pad(x: cute.Tensor, y: cute.Tensor):
    pad_kernel(x, y).launch(grid=[x.shape[0], cute.ceil_div(x.shape[1], 128), 1], block=[128, 1, 1])


def rows_of_16_bytes(x):
    if x.stride(1) != 1:
        return rows_of_16_bytes(x.t()).t()
    if x.stride(0) % 8 == 0:
        return x
    y = torch.empty(x.shape[0], (x.shape[1] + 7) // 8 * 8, dtype=x.dtype, device=x.device)[:, : x.shape[1]]
    lane.run(pad, x, y)
    return y


def matmul(a, b):
    c = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    lane.run(gemm, rows_of_16_bytes(a), rows_of_16_bytes(b.t()), c)
    return c
