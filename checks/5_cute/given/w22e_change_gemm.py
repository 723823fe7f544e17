"""Change requests: a GEMM that somebody else wrote, changed in three places.

run(change, a, b, bias) takes bfloat16 matrices a (m, k) and b (n, k), and in one of the requests a bias. It returns

    out     a @ b.T in bfloat16, with float32 accumulators, rounded once
    order   the number of the block that computes each tile of out, int32 of shape (rows of tiles, columns of tiles)

The kernel below does that for a row-major a, without a bias. Three requests have come in. The tests are the contract,
and pass the name of the request as `change`:

    order      Blocks now compute tiles in row-major order. They should go down GROUP rows of tiles before they continue
               with the next column. The last group may have fewer rows. Blocks that run at the same time then share
               more of a and b in L2.
    epilogue   With a bias (n), bfloat16, out is max(a @ b.T + bias, 0). Compute both steps in float32, and round
               only once. Without a bias nothing changes.
    major      a may be column-major (a.T is contiguous) as well as row-major. wgmma reads both orders from shared
               memory, and TMA reads both from global memory. No thread may move elements.

k and m are multiples of 8, and n is at least 1. Every tensor has fewer than 2**31 elements.

A reviewer will read your change. The grader counts the statements that you change, as in the repair exercises, at most
6 in order, 8 in epilogue, 4 in major, and none outside of these sections. A moved statement counts as two changes.
Comments and line breaks do not count. Without a GPU the kernel runs on the PTX machine, which grades this exercise even
on a computer with a GPU.
"""

import cutlass
import cutlass.utils.hopper_helpers as hopper
import torch
from cutlass import cute, pipeline
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum

from kernelpath.lanes import cute as lane

WARP = 32
WARPGROUP = 128
TILE = (64, 64)
BLOCK_K = 64  # columns of a stage: rows of 128 bytes, the span of the widest swizzle
STAGES = 3
GROUP = 4  # rows of tiles that blocks go down before the next column

# ---- order ----


@cute.jit
def tile_of(block, tiles_m, tiles_n):
    """Return the row and the column of a block's tile, in tiles, of tiles_m x tiles_n."""
    return block // tiles_n, block % tiles_n


# ---- epilogue ----


@cute.jit
def finish(acc, coordinates, bias):
    """Change the accumulators of a thread before they are rounded.

    coordinates: the (row, column) in out of each accumulator. bias: a tensor, or None.
    """
    pass


# ---- kernel ----


@cute.kernel
def multiply(mma: cute.TiledMma, copy_a, copy_b, out: cute.Tensor, bias, order):
    """Compute a tile of out: the last warp fills a ring of stages by TMA, the warpgroup before it multiplies."""
    (atom_a, a, layout_a), (atom_b, b, layout_b) = copy_a, copy_b
    tid, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    warp_id = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    tile_m, tile_n = tile_of(block, cute.ceil_div(out.shape[0], TILE[0]), cute.ceil_div(out.shape[1], TILE[1]))
    if tid == 0:
        order[tile_m, tile_n] = block

    memory = SmemAllocator()
    barriers = memory.allocate_array(cutlass.Int64, 2 * STAGES)
    smem_a = memory.allocate_tensor(atom_a.value_type, layout_a.outer, 1024, layout_a.inner)
    smem_b = memory.allocate_tensor(atom_b.value_type, layout_b.outer, 1024, layout_b.inner)
    ring = pipeline.PipelineTmaAsync.create(
        barrier_storage=barriers,
        num_stages=STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, WARPGROUP // WARP),
        tx_count=(TILE[0] + TILE[1]) * BLOCK_K * atom_a.value_type.width // 8,
        cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)),
    )
    gA = cute.local_tile(a, (TILE[0], BLOCK_K), (tile_m, None))
    gB = cute.local_tile(b, (TILE[1], BLOCK_K), (tile_n, None))
    k_tiles = cute.size(gA, mode=[2])
    if warp_id == WARPGROUP // WARP:
        tAsA, tAgA = partition(atom_a, smem_a, gA)
        tBsB, tBgB = partition(atom_b, smem_b, gB)
        pipe_write = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, STAGES)
        for k_tile in cutlass.range(k_tiles, unroll=1):
            ring.producer_acquire(pipe_write)
            full = ring.producer_get_barrier(pipe_write)
            cute.copy(atom_a, tAgA[None, k_tile], tAsA[None, pipe_write.index], tma_bar_ptr=full)
            cute.copy(atom_b, tBgB[None, k_tile], tBsB[None, pipe_write.index], tma_bar_ptr=full)
            pipe_write.advance()
    else:
        thr_mma = mma.get_slice(tid)
        tCrA = mma.make_fragment_A(thr_mma.partition_A(smem_a))
        tCrB = mma.make_fragment_B(thr_mma.partition_B(smem_b))
        acc = cute.make_rmem_tensor(mma.partition_shape_C(TILE), cutlass.Float32)
        acc.fill(0.0)
        mma.set(warpgroup.Field.ACCUMULATE, True)
        pipe_read = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
        for _ in cutlass.range(k_tiles, unroll=1):
            ring.consumer_wait(pipe_read)
            warpgroup.fence()
            for k in cutlass.range_constexpr(BLOCK_K // 16):
                stage = (None, None, k, pipe_read.index)
                cute.gemm(mma, acc, tCrA[stage], tCrB[stage], acc)
            warpgroup.commit_group()
            warpgroup.wait_group(0)
            ring.consumer_release(pipe_read)
            pipe_read.advance()

        numbers = cute.local_tile(cute.make_identity_tensor(out.shape), TILE, (tile_m, tile_n))
        coordinates = thr_mma.partition_C(numbers)
        finish(acc, coordinates, bias)
        for i in cutlass.range_constexpr(cute.size(acc)):
            if cute.elem_less(coordinates[i], out.shape):
                out[coordinates[i]] = acc[i].to(out.element_type)


@cute.jit
def partition(atom: cute.CopyAtom, smem: cute.Tensor, tiles: cute.Tensor):
    """Return stages and tiles in the form that a copy with the atom expects."""
    return cpasync.tma_partition(
        atom, 0, cute.make_layout(1), cute.group_modes(smem, 0, 2), cute.group_modes(tiles, 0, 2)
    )


# ---- major ----


@cute.jit
def gemm(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor, order: cute.Tensor, bias, has_bias: cutlass.Constexpr):
    """Make the tiled MMA, the layouts of shared memory and the TMA atoms, and launch a block for each tile of out."""
    row_major = LayoutEnum.ROW_MAJOR
    majors = (row_major.sm90_mma_major_mode(), row_major.sm90_mma_major_mode())
    mma = hopper.make_trivial_tiled_mma(
        a.element_type, b.element_type, *majors, cutlass.Float32, (1, 1, 1), tiler_mn=TILE
    )
    smem_layout_a = hopper.make_smem_layout_a(row_major, (*TILE, BLOCK_K), a.element_type, STAGES)
    smem_layout_b = hopper.make_smem_layout_b(row_major, (*TILE, BLOCK_K), b.element_type, STAGES)
    load = cpasync.CopyBulkTensorTileG2SOp()
    atom_a, tma_a = cpasync.make_tiled_tma_atom(load, a, smem_layout_a, (TILE[0], BLOCK_K))
    atom_b, tma_b = cpasync.make_tiled_tma_atom(load, b, smem_layout_b, (TILE[1], BLOCK_K))
    tiles = cute.ceil_div(out.shape[0], TILE[0]) * cute.ceil_div(out.shape[1], TILE[1])
    bias_or_none = bias if cutlass.const_expr(has_bias) else None
    multiply(mma, (atom_a, tma_a, smem_layout_a), (atom_b, tma_b, smem_layout_b), out, bias_or_none, order).launch(
        grid=[tiles, 1, 1], block=[WARPGROUP + WARP, 1, 1]
    )


# ---- launch ----


def run(
    change: str, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    m, n = len(a), len(b)
    out = a.new_empty(m, n)
    order = a.new_empty(-(-m // TILE[0]), -(-n // TILE[1]), dtype=torch.int32)
    lane.run(gemm, a, b, out, order, b if bias is None else bias, bias is not None)
    return out, order
