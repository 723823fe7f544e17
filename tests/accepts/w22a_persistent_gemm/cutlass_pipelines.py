"""As CUTLASS's example: its pipelines, its scheduler of tiles and its named barrier, in a class; tiles of 128 x 128."""

import cutlass
import cutlass.cute as cute
import cutlass.pipeline as pipeline
import cutlass.utils as utils
import cutlass.utils.hopper_helpers as sm90
import torch
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.utils import LayoutEnum, SmemAllocator

from kernelpath.lanes import cute as lane


class PersistentGemm:
    def __init__(self):
        self.tile, self.stages, self.epi_stages = (128, 128, 64), 5, 2
        self.epi_tile = (128, 32)
        self.epilogue = pipeline.NamedBarrier(barrier_id=1, num_threads=256)

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, clusters: cutlass.Constexpr):
        la, lb, lc = LayoutEnum.from_tensor(a), LayoutEnum.from_tensor(b), LayoutEnum.from_tensor(c)
        dtype, (bm, bn, bk) = a.element_type, self.tile
        mma = sm90.make_trivial_tiled_mma(
            dtype, dtype, la.sm90_mma_major_mode(), lb.sm90_mma_major_mode(), cutlass.Float32, (2, 1, 1), (64, bn)
        )
        sa = sm90.make_smem_layout_a(la, self.tile, dtype, self.stages)
        sb = sm90.make_smem_layout_b(lb, self.tile, dtype, self.stages)
        sc = sm90.make_smem_layout_epi(dtype, lc, self.epi_tile, self.epi_stages)
        one, load = (None, None, 0), cpasync.CopyBulkTensorTileG2SOp()
        tma_a, ma = cpasync.make_tiled_tma_atom(load, a, cute.slice_(sa, one), (bm, bk))
        tma_b, mb = cpasync.make_tiled_tma_atom(load, b, cute.slice_(sb, one), (bn, bk))
        tma_c, mc = cpasync.make_tiled_tma_atom(
            cpasync.CopyBulkTensorTileS2GOp(), c, cute.slice_(sc, one), self.epi_tile
        )
        tiles = (cute.ceil_div(c.shape[0], bm), cute.ceil_div(c.shape[1], bn), 1)
        params = utils.PersistentTileSchedulerParams(tiles, (1, 1, 1))
        grid = utils.StaticPersistentTileScheduler.get_grid_shape(params, clusters)
        self.kernel(mma, sa, sb, sc, tma_a, ma, tma_b, mb, tma_c, mc, params).launch(
            grid=grid, block=[384, 1, 1], cluster=(1, 1, 1), min_blocks_per_mp=1
        )

    @cute.kernel
    def kernel(self, mma, sa, sb, sc, tma_a, ma, tma_b, mb, tma_c, mc, params: utils.PersistentTileSchedulerParams):
        tidx, _, _ = cute.arch.thread_idx()
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        bm, bn, bk = self.tile
        smem = SmemAllocator()
        bars = smem.allocate_array(cutlass.Int64, 2 * self.stages)
        s_a = smem.allocate_tensor(tma_a.value_type, sa.outer, 1024, sa.inner)
        s_b = smem.allocate_tensor(tma_b.value_type, sb.outer, 1024, sb.inner)
        s_c = smem.allocate_tensor(tma_c.value_type, sc.outer, 1024, sc.inner)
        ring = pipeline.PipelineTmaAsync.create(
            barrier_storage=bars,
            num_stages=self.stages,
            producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
            consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 8),
            tx_count=2 * bk * (bm + bn),
            cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)),
        )
        g_a, g_b = cute.local_tile(ma, (bm, bk), (None, None)), cute.local_tile(mb, (bn, bk), (None, None))
        g_c = cute.local_tile(mc, (bm, bn), (None, None))
        one = cute.make_layout(1)
        to_a, from_a = cpasync.tma_partition(tma_a, 0, one, cute.group_modes(s_a, 0, 2), cute.group_modes(g_a, 0, 2))
        to_b, from_b = cpasync.tma_partition(tma_b, 0, one, cute.group_modes(s_b, 0, 2), cute.group_modes(g_b, 0, 2))
        k_tiles = cute.size(g_a, mode=[3])
        schedule = utils.StaticPersistentTileScheduler.create(params, cute.arch.block_idx(), cute.arch.grid_dim())
        work = schedule.initial_work_tile_info()
        if warp < 4:
            cute.arch.setmaxregister_decrease(40)
            if warp == 0:
                state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, self.stages)
                while work.is_valid_tile:
                    m, n, _ = work.tile_idx
                    for k in cutlass.range(k_tiles, unroll=1):
                        ring.producer_acquire(state)
                        bar = ring.producer_get_barrier(state)
                        cute.copy(tma_a, from_a[None, m, k], to_a[None, state.index], tma_bar_ptr=bar)
                        cute.copy(tma_b, from_b[None, n, k], to_b[None, state.index], tma_bar_ptr=bar)
                        state.advance()
                    schedule.advance_to_next_work()
                    work = schedule.get_current_work()
                ring.producer_tail(state)
        else:
            cute.arch.setmaxregister_increase(232)
            state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, self.stages)
            thr = mma.get_slice(tidx - 128)
            r_a, r_b = mma.make_fragment_A(thr.partition_A(s_a)), mma.make_fragment_B(thr.partition_B(s_b))
            acc = cute.make_rmem_tensor(mma.partition_shape_C((bm, bn)), cutlass.Float32)
            atom = sm90.sm90_get_smem_store_op(LayoutEnum.ROW_MAJOR, tma_c.value_type, cutlass.Float32)
            narrow = cute.make_copy_atom(cute.nvgpu.warp.StMatrix8x8x16bOp(False, 4), tma_c.value_type)
            r2s = cute.make_tiled_copy_S(atom, cute.make_tiled_copy_C_atom(narrow, mma))
            thr_r2s = r2s.get_slice(tidx - 128)
            to_s, r_acc = thr_r2s.partition_D(s_c), r2s.retile(acc)
            piece = cute.make_rmem_tensor(
                cute.make_layout(cute.shape(thr_r2s.partition_S(s_c))[:3]).shape, cutlass.Float32
            )
            out = cute.make_rmem_tensor_like(piece, tma_c.value_type)
            stores = pipeline.PipelineTmaStore.create(
                num_stages=self.epi_stages,
                producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 256),
            )
            while work.is_valid_tile:
                m, n, _ = work.tile_idx
                acc.fill(0.0)
                mma.set(warpgroup.Field.ACCUMULATE, True)
                for _ in cutlass.range(k_tiles, unroll=1):
                    ring.consumer_wait(state)
                    warpgroup.fence()
                    for block in cutlass.range_constexpr(bk // 16):
                        at = (None, None, block, state.index)
                        cute.gemm(mma, acc, r_a[at], r_b[at], acc)
                    warpgroup.commit_group()
                    warpgroup.wait_group(0)
                    ring.consumer_release(state)
                    state.advance()
                parts = cute.zipped_divide(g_c[None, None, m, n], self.epi_tile)
                from_s, to_g = cpasync.tma_partition(tma_c, 0, one, cute.group_modes(s_c, 0, 2), parts)
                for i in cutlass.range_constexpr(bn // self.epi_tile[1]):
                    for e in cutlass.range_constexpr(cute.size(piece)):
                        piece[e] = r_acc[i * cute.size(piece) + e]
                    out.store(piece.load().to(tma_c.value_type))
                    cute.copy(r2s, out, to_s[None, None, None, i % self.epi_stages])
                    cute.arch.fence_proxy("async.shared", space="cta")
                    self.epilogue.arrive_and_wait()
                    if warp == 4:
                        cute.copy(tma_c, from_s[None, i % self.epi_stages], to_g[None, (0, i)])
                        stores.producer_commit()
                        stores.producer_acquire()
                    self.epilogue.arrive_and_wait()
                schedule.advance_to_next_work()
                work = schedule.get_current_work()
            stores.producer_tail()


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


_gemm = PersistentGemm()


@cute.jit
def gemm(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, clusters: cutlass.Constexpr):
    _gemm(a, b, c, clusters)


def matmul(a, b):
    c = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    wide = c if c.shape[1] % 8 == 0 else torch.empty(len(c), (c.shape[1] + 7) // 8 * 8, dtype=c.dtype, device=c.device)
    wide = wide[:, : c.shape[1]]
    clusters = torch.cuda.get_device_properties(a.device if a.is_cuda else None).multi_processor_count
    lane.run(gemm, rows_of_16_bytes(a), rows_of_16_bytes(b.t()), wide, clusters)
    if c.shape[1] % 8:
        lane.run(pad, wide, c)
    return c
