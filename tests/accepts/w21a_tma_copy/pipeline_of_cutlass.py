"""As CUTLASS writes it: a class, a struct of shared memory, PipelineTmaAsync, and blocks that stay."""

import cutlass
import torch
from cutlass import cute, pipeline
from cutlass.cute.nvgpu import cpasync
from cutlass.memory import SmemAllocator

from kernelpath.lanes import cute as lane


class Copy:
    def __init__(self, rows: int, row_bytes: int, stages: int):
        self.rows, self.row_bytes, self.stages = rows, row_bytes, stages

    @cute.jit
    def __call__(self, src: cute.Tensor, dst: cute.Tensor, blocks: cutlass.Int32):
        columns = cutlass.const_expr(self.row_bytes * 8 // src.element_type.width)
        self.box = (self.rows, columns)
        self.layout = cute.make_ordered_layout((*self.box, self.stages), order=(1, 0, 2))
        one = cute.slice_(self.layout, (None, None, 0))
        load = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), src, one, self.box)
        store = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileS2GOp(), dst, one, self.box)

        @cute.struct
        class SharedStorage:
            barriers: cute.struct.MemRange[cutlass.Int64, 2 * self.stages]
            boxes: cute.struct.Align[cute.struct.MemRange[src.element_type, cute.cosize(self.layout)], 128]

        self.storage = SharedStorage
        count = cute.ceil_div(src.shape[0], self.box[0]) * cute.ceil_div(src.shape[1], self.box[1])
        self.kernel(*load, *store, self.layout).launch(grid=[cutlass.min(count, blocks), 1, 1], block=[64, 1, 1])

    @cute.kernel
    def kernel(
        self, load: cute.CopyAtom, src: cute.Tensor, store: cute.CopyAtom, dst: cute.Tensor, layout: cute.Layout
    ):
        bidx, _, _ = cute.arch.block_idx()
        gdim, _, _ = cute.arch.grid_dim()
        warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        storage = SmemAllocator().allocate(self.storage)
        boxes = cute.group_modes(storage.boxes.get_tensor(layout), 0, 2)
        mainloop = pipeline.PipelineTmaAsync.create(
            barrier_storage=storage.barriers.data_ptr(),
            num_stages=self.stages,
            producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
            consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 1),
            tx_count=cute.size_in_bytes(load.value_type, cute.slice_(layout, (None, None, 0))),
            cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)),
        )
        g_src, g_dst = cute.zipped_divide(src, self.box), cute.zipped_divide(dst, self.box)
        t_in, t_src = cpasync.tma_partition(load, 0, cute.make_layout(1), boxes, g_src)
        t_out, t_dst = cpasync.tma_partition(store, 0, cute.make_layout(1), boxes, g_dst)
        if warp_idx == 0:
            state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, self.stages)
            for tile in cutlass.range(bidx, cute.size(t_src, mode=[1]), gdim, unroll=1):
                mainloop.producer_acquire(state)
                barrier = mainloop.producer_get_barrier(state)
                cute.copy(load, t_src[None, tile], t_in[None, state.index], tma_bar_ptr=barrier)
                mainloop.producer_commit(state)
                state.advance()
        else:
            state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, self.stages)
            for tile in cutlass.range(bidx, cute.size(t_src, mode=[1]), gdim, unroll=1):
                mainloop.consumer_wait(state)
                cute.copy(store, t_out[None, state.index], t_dst[None, tile])
                cute.arch.cp_async_bulk_commit_group()
                cute.arch.cp_async_bulk_wait_group(0, read=True)
                mainloop.consumer_release(state)
                state.advance()


COPY = Copy(rows=32, row_bytes=512, stages=4)


@cute.jit
def launch(src: cute.Tensor, dst: cute.Tensor, blocks: cutlass.Int32):
    COPY(src, dst, blocks)


def tma_copy(x):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    processors = torch.cuda.get_device_properties(x.device if x.is_cuda else None).multi_processor_count
    lane.run(launch, x, out, 3 * processors)
    return out
