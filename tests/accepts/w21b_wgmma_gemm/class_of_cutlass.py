"""As CUTLASS writes it: a class, a struct of shared memory, PipelineTmaAsync; two warpgroups, of which warp 0 loads."""

import cutlass
import cutlass.utils.hopper_helpers as hopper
from cutlass import cute, pipeline
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum

from kernelpath.lanes import cute as lane


class DenseGemm:
    def __init__(self, tile_shape_mnk=(128, 128, 64), stages=4):
        self.tile, self.stages, self.threads = tile_shape_mnk, stages, 256

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
        layout, (m, n, k) = LayoutEnum.ROW_MAJOR, self.tile
        mode = layout.sm90_mma_major_mode()
        tiled_mma = hopper.make_trivial_tiled_mma(
            a.element_type, b.element_type, mode, mode, cutlass.Float32, (2, 1, 1), tiler_mn=(64, n)
        )
        self.a_layout = hopper.make_smem_layout_a(layout, self.tile, a.element_type, self.stages)
        self.b_layout = hopper.make_smem_layout_b(layout, self.tile, b.element_type, self.stages)
        op = cpasync.CopyBulkTensorTileG2SOp()
        tma_a = cpasync.make_tiled_tma_atom(op, a, cute.slice_(self.a_layout, (None, None, 0)), (m, k))
        tma_b = cpasync.make_tiled_tma_atom(op, b, cute.slice_(self.b_layout, (None, None, 0)), (n, k))

        @cute.struct
        class SharedStorage:
            barriers: cute.struct.MemRange[cutlass.Int64, 2 * self.stages]
            sa: cute.struct.Align[cute.struct.MemRange[a.element_type, cute.cosize(self.a_layout)], 1024]
            sb: cute.struct.Align[cute.struct.MemRange[b.element_type, cute.cosize(self.b_layout)], 1024]
            sc: cute.struct.Align[cute.struct.MemRange[c.element_type, m * n], 128]

        self.storage = SharedStorage
        grid = [cute.ceil_div(c.shape[0], m), cute.ceil_div(c.shape[1], n), 1]
        self.kernel(tiled_mma, *tma_a, *tma_b, c, self.a_layout, self.b_layout).launch(
            grid=grid, block=[self.threads, 1, 1]
        )

    @cute.kernel
    def kernel(
        self,
        tiled_mma: cute.TiledMma,
        tma_a: cute.CopyAtom,
        mA: cute.Tensor,
        tma_b: cute.CopyAtom,
        mB: cute.Tensor,
        mC: cute.Tensor,
        a_layout: cute.ComposedLayout,
        b_layout: cute.ComposedLayout,
    ):
        tidx, _, _ = cute.arch.thread_idx()
        bidx, bidy, _ = cute.arch.block_idx()
        warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        storage = SmemAllocator().allocate(self.storage)
        sA = storage.sa.get_tensor(a_layout.outer, swizzle=a_layout.inner)
        sB = storage.sb.get_tensor(b_layout.outer, swizzle=b_layout.inner)
        mainloop = pipeline.PipelineTmaAsync.create(
            barrier_storage=storage.barriers.data_ptr(),
            num_stages=self.stages,
            producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
            consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, self.threads // 32),
            tx_count=cute.size_in_bytes(tma_a.value_type, cute.slice_(a_layout, (None, None, 0)))
            + cute.size_in_bytes(tma_b.value_type, cute.slice_(b_layout, (None, None, 0))),
            cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)),
        )
        gA = cute.local_tile(mA, self.tile, (bidx, bidy, None), proj=(1, None, 1))
        gB = cute.local_tile(mB, self.tile, (bidx, bidy, None), proj=(None, 1, 1))
        tAsA, tAgA = cpasync.tma_partition(
            tma_a, 0, cute.make_layout(1), cute.group_modes(sA, 0, 2), cute.group_modes(gA, 0, 2)
        )
        tBsB, tBgB = cpasync.tma_partition(
            tma_b, 0, cute.make_layout(1), cute.group_modes(sB, 0, 2), cute.group_modes(gB, 0, 2)
        )
        thr_mma = tiled_mma.get_slice(tidx)
        tCrA = tiled_mma.make_fragment_A(thr_mma.partition_A(sA))
        tCrB = tiled_mma.make_fragment_B(thr_mma.partition_B(sB))
        accumulators = cute.make_rmem_tensor(tiled_mma.partition_shape_C(self.tile[:2]), cutlass.Float32)
        accumulators.fill(0.0)
        tiled_mma.set(warpgroup.Field.ACCUMULATE, True)

        k_tiles = cute.size(gA, mode=[2])
        producer = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, self.stages)
        consumer = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, self.stages)
        for k_tile in cutlass.range(k_tiles + self.stages - 1, unroll=1):
            if warp_idx == 0 and k_tile < k_tiles:
                mainloop.producer_acquire(producer)
                barrier = mainloop.producer_get_barrier(producer)
                cute.copy(tma_a, tAgA[None, k_tile], tAsA[None, producer.index], tma_bar_ptr=barrier)
                cute.copy(tma_b, tBgB[None, k_tile], tBsB[None, producer.index], tma_bar_ptr=barrier)
                mainloop.producer_commit(producer)
                producer.advance()
            if k_tile >= self.stages - 1:
                mainloop.consumer_wait(consumer)
                warpgroup.fence()
                for k_block in cutlass.range_constexpr(cute.size(tCrA, mode=[2])):
                    crd = (None, None, k_block, consumer.index)
                    cute.gemm(tiled_mma, accumulators, tCrA[crd], tCrB[crd], accumulators)
                warpgroup.commit_group()
                warpgroup.wait_group(0)
                mainloop.consumer_release(consumer)
                consumer.advance()

        sC = storage.sc.get_tensor(cute.make_layout(self.tile[:2], stride=(self.tile[1], 1)))
        tCsC = thr_mma.partition_C(sC)
        for i in cutlass.range_constexpr(cute.size(accumulators)):
            tCsC[i] = accumulators[i].to(mC.element_type)
        cute.arch.sync_threads()
        for i in cutlass.range(tidx, cute.size(sC), self.threads, unroll=1):
            row, col = i // self.tile[1], i % self.tile[1]
            at = (bidx * self.tile[0] + row, bidy * self.tile[1] + col)
            if cute.elem_less(at, mC.shape):
                mC[at] = sC[row, col]


GEMM = DenseGemm()


@cute.jit
def launch(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
    GEMM(a, b, c)


def wgmma_gemm(a, b):
    c = a.new_empty(a.shape[0], b.shape[0])
    lane.run(launch, a, b, c)
    return c
