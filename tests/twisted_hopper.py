"""Generate a minimal GEMM for Hopper in CuTe DSL, alone or with the layouts and the epilogue of a variant.

One tile of 128 x 128 per block, a ring of two stages, TMA both ways, wgmma. A worker cannot read this folder.
"""

from __future__ import annotations

from pathlib import Path

from kernelpath.course.checkpoint import DeliverableVariant

EPILOGUES = {
    "none": "sum",
    "scaled_rows": "scale[x].to(cutlass.Float32) * sum + bias[y].to(cutlass.Float32)",
    "squared_relu": "squared(sum + bias[y].to(cutlass.Float32))",
    "capped": "3.0 * cute.math.tanh(sum / 3.0)",
}
FURTHER = {"none": (), "scaled_rows": ("scale", "bias"), "squared_relu": ("bias",), "capped": ()}

TEXT = """
import cutlass
import cutlass.utils.hopper_helpers as hopper
from cutlass import cute, pipeline
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum

from warpcheck.frontends import cute as lane

THREADS, STAGES = 128, 2
TILE = (128, 128, 64)
A, B = {a}, {b}


@cute.jit
def squared(x):
    y = cutlass.max(x, cutlass.Float32(0.0))
    return y * y


@cute.jit
def host(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor{parameters}):
    dtype, rows = a.element_type, LayoutEnum.ROW_MAJOR
    mma = hopper.make_trivial_tiled_mma(
        dtype, dtype, A.sm90_mma_major_mode(), B.sm90_mma_major_mode(), cutlass.Float32, (1, 1, 1), tiler_mn=(64, 128)
    )
    of_a = hopper.make_smem_layout_a(A, TILE, dtype, STAGES)
    of_b = hopper.make_smem_layout_b(B, TILE, dtype, STAGES)
    of_c = hopper.make_smem_layout_epi(c.element_type, rows, TILE[:2], 1)
    one = (None, None, 0)
    load, store = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileS2GOp()
    multiply(
        mma,
        (of_a, of_b, of_c),
        cpasync.make_tiled_tma_atom(load, a, cute.slice_(of_a, one), (TILE[0], TILE[2])),
        cpasync.make_tiled_tma_atom(load, b, cute.slice_(of_b, one), (TILE[1], TILE[2])),
        cpasync.make_tiled_tma_atom(store, c, cute.slice_(of_c, one), TILE[:2]),
        c{names},
    ).launch(grid=[cute.ceil_div(c.shape[0], TILE[0]), cute.ceil_div(c.shape[1], TILE[1]), 1], block=[THREADS, 1, 1])


@cute.kernel
def multiply(mma, layouts, a, b, c, whole{names}):
    (of_a, of_b, of_c), (copy_a, a), (copy_b, b), (copy_c, c) = layouts, a, b, c
    thread, _, _ = cute.arch.thread_idx()
    row, column, _ = cute.arch.block_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())

    memory = SmemAllocator()
    barriers = memory.allocate_array(cutlass.Int64, 2 * STAGES)
    shared_a = memory.allocate_tensor(copy_a.value_type, of_a.outer, 1024, of_a.inner)
    shared_b = memory.allocate_tensor(copy_b.value_type, of_b.outer, 1024, of_b.inner)
    shared_c = memory.allocate_tensor(copy_c.value_type, of_c.outer, 1024, of_c.inner)

    tiles_a = cute.local_tile(a, (TILE[0], TILE[2]), (row, None))
    tiles_b = cute.local_tile(b, (TILE[1], TILE[2]), (column, None))
    tile_c = cute.local_tile(c, TILE[:2], (row, column))
    alone = cute.make_layout(1)
    to_a, from_a = cpasync.tma_partition(
        copy_a, 0, alone, cute.group_modes(shared_a, 0, 2), cute.group_modes(tiles_a, 0, 2)
    )
    to_b, from_b = cpasync.tma_partition(
        copy_b, 0, alone, cute.group_modes(shared_b, 0, 2), cute.group_modes(tiles_b, 0, 2)
    )
    from_c, to_c = cpasync.tma_partition(
        copy_c, 0, alone, cute.group_modes(shared_c, 0, 2), cute.group_modes(tile_c, 0, 2)
    )
    stages = pipeline.PipelineTmaAsync.create(
        barrier_storage=barriers,
        num_stages=STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, THREADS // 32),
        tx_count=cute.size_in_bytes(copy_a.value_type, cute.slice_(of_a, (None, None, 0)))
        + cute.size_in_bytes(copy_b.value_type, cute.slice_(of_b, (None, None, 0))),
        cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)),
    )
    filling = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, STAGES)
    reading = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
    mine = mma.get_slice(thread)
    fragments_a = mma.make_fragment_A(mine.partition_A(shared_a))
    fragments_b = mma.make_fragment_B(mine.partition_B(shared_b))
    total = cute.make_rmem_tensor(mine.partition_C(tile_c).shape, cutlass.Float32)
    total.fill(0.0)

    steps = cute.size(tiles_a, mode=[2])
    for step in cutlass.range(steps + STAGES - 1, unroll=1):
        if warp == 0 and step < steps:
            stages.producer_acquire(filling)
            full = stages.producer_get_barrier(filling)
            cute.copy(copy_a, from_a[None, step], to_a[None, filling.index], tma_bar_ptr=full)
            cute.copy(copy_b, from_b[None, step], to_b[None, filling.index], tma_bar_ptr=full)
            filling.advance()
        if step >= STAGES - 1:
            stages.consumer_wait(reading)
            warpgroup.fence()
            for part in cutlass.range_constexpr(cute.size(fragments_a, mode=[2])):
                mma.set(warpgroup.Field.ACCUMULATE, True)
                at = (None, None, part, reading.index)
                cute.gemm(mma, total, fragments_a[at], fragments_b[at], total)
            warpgroup.commit_group()
            {wait}
            stages.consumer_release(reading)
            reading.advance()

    where = mine.partition_C(cute.local_tile(cute.make_identity_tensor(whole.shape), TILE[:2], (row, column)))
    for i in cutlass.range_constexpr(cute.size(total)):
        x, y = (cutlass.min(where[i][mode], whole.shape[mode] - 1) for mode in (0, 1))
        sum = total[i]
        total[i] = {value}
    result = cute.make_rmem_tensor_like(total, copy_c.value_type)
    result.store(total.load().to(copy_c.value_type))
    atom = hopper.sm90_get_smem_store_op(LayoutEnum.ROW_MAJOR, copy_c.value_type, cutlass.Float32)
    to_shared = cute.make_tiled_copy_C(atom, mma).get_slice(thread)
    cute.copy(atom, to_shared.retile(result), to_shared.partition_D(shared_c)[None, None, None, 0])
    {fence}
    cute.arch.sync_threads()
    if warp == 0:
        cute.copy(copy_c, from_c[None, 0], to_c)
        cute.arch.cp_async_bulk_commit_group()
        cute.arch.cp_async_bulk_wait_group(0, read=True)


def product(a, b{names}):
    out = a.new_empty(a.shape[0], b.shape[1])
    lane.run(host, a, b.T, out{names})
    return out
"""

# The major modes of a (m, k) and of b as (n, k).
MAJOR = {"n": ("LayoutEnum.ROW_MAJOR", "LayoutEnum.COL_MAJOR"), "t": ("LayoutEnum.COL_MAJOR", "LayoutEnum.ROW_MAJOR")}


def source(
    layout: str,
    epilogue: str,
    *,
    wait: str = "warpgroup.wait_group(0)",
    fence: str = 'cute.arch.fence_proxy("async.shared", space="cta")',
) -> str:
    """Return a module with `product(a, b, …)` for a (m, k) and b (k, n), with a layout "nn" to "tt" and an epilogue.

    wait, fence: statements that replace the wait and the fence.
    """
    further = FURTHER[epilogue]
    return TEXT.format(
        a=MAJOR[layout[0]][0],
        b=MAJOR[layout[1]][1],
        parameters="".join(f", {name}: cute.Tensor" for name in further),
        names="".join(f", {name}" for name in further),
        value=EPILOGUES[epilogue],
        wait=wait,
        fence=fence,
    )


def write(twist: DeliverableVariant, folder: Path, **cut: str) -> Path:
    """Write a submission and return its file. cut: the keyword arguments of `source`."""
    layout, epilogue, _ = twist.name.split("+")
    path = folder / "deliverable.py"
    path.write_text(source(layout, epilogue, **cut))
    return path
