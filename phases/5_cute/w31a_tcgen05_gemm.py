"""Multiply matrices with tcgen05.mma, whose accumulator is in tensor memory.

tcgen05_gemm(a, b) returns a @ b.T in bfloat16, with float32 accumulators that are rounded once. a is m x k and b is n x
k, both contiguous bfloat16 with addresses that are multiples of 16 bytes. m and n may be any positive number. k is a
multiple of 8, because TMA requires rows that start at multiples of 16 bytes. Every matrix has fewer than 2**31
elements.

A block computes one tile of out with six warps. For each step along k, warp 5 loads a tile of a and a tile of b by TMA
into a stage of a circular buffer. Warp 4 issues the tcgen05.mma instructions, which read both operands from shared
memory and add to an accumulator in tensor memory. Warps 0 to 3 wait until the accumulator is complete, load it into
registers, round it, and write it to shared memory. From there TMA stores it, or threads do if the rows of out don't
start at multiples of 16 bytes.

A stage has two mbarriers, as in week 22. `full` completes when the stage's bytes have arrived, and `empty` completes
when the MMAs that read them are done. `done` completes when the whole accumulator is complete.

TMA, the circular buffer, the tensor maps, and the store are given, because they're the same as in weeks 21 and 22.
Write the new parts: the allocation of tensor memory in `multiply`, `multiply_steps`, and `round_tile`.

The grader checks the values and that TMA and tensor cores do the work. On an sm_100 GPU, it also compares the time with
cuBLAS. The PTX machine runs sm_100a as the manual describes it. Its behavior hasn't been confirmed on hardware yet.

The grader enforces these limits on the largest case (m=256 n=256 k=256); smaller cases get some slack for partial
tiles. In total, global memory accesses may move at most 6 times the size of the inputs and outputs. At least 50% of the
global memory traffic must go through TMA. At least 50% of the MMAs must be issued while a copy of the next tiles is in
flight. The multiply-adds must run on tensor cores.
"""

import cutlass
import cutlass.utils.blackwell_helpers as blackwell
import torch
from cutlass import cute, pipeline
from cutlass.cute.nvgpu import cpasync, tcgen05
from cutlass.memory import SmemAllocator, TmemAllocator
from cutlass.tensor_utils import LayoutEnum

from kernelpath.lanes import cute as lane

WARP = 32
# Rows and columns of a tile of out, and columns of a and b in a stage: 128 bytes, the width of the widest swizzle.
TILE = (128, 256, 64)
STAGES = 3
# Columns of out that the epilogue loads, rounds, and stores at once.
STRIP = 64
# Rows of tiles that neighboring blocks share, so that L2 serves a and b.
GROUP_M = 8
EPILOGUE_WARPS, MMA_WARP, TMA_WARP, WARPS = 4, 4, 5, 6


@cute.kernel
def multiply(mma: cute.TiledMma, a, b, out: cute.Tensor, strips, store):
    """Compute one tile of out. a, b: copy, TMA tensor, and layout of the ring. store: copy and TMA tensor, or None."""
    (atom_a, a, layout_a), (atom_b, b, layout_b) = a, b
    warp_id = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    tile_m, tile_n = place(out.shape)

    memory = SmemAllocator()
    full, empty = (memory.allocate_array(cutlass.Int64, STAGES) for _ in range(2))
    done = memory.allocate_array(cutlass.Int64, 1)
    sA = memory.allocate_tensor(atom_a.value_type, layout_a.outer, 1024, layout_a.inner)
    sB = memory.allocate_tensor(atom_b.value_type, layout_b.outer, 1024, layout_b.inner)
    sC = memory.allocate_tensor(out.element_type, strips.outer, 1024, strips.inner)
    if warp_id == TMA_WARP:
        with cute.arch.elect_one():
            for stage in cutlass.range_constexpr(STAGES):
                cute.arch.mbarrier_init(full + stage, 1)
                cute.arch.mbarrier_init(empty + stage, 1)
            cute.arch.mbarrier_init(done, 1)
        cute.arch.mbarrier_init_fence()

    # TODO: allocate TILE[1] columns of tensor memory; wait for them and for the mbarriers; acc is a tensor there

    if warp_id == TMA_WARP:
        copy_a = partition(atom_a, sA, mma.get_slice(0).partition_A(cute.local_tile(a, TILE[::2], (tile_m, None))))
        copy_b = partition(atom_b, sB, mma.get_slice(0).partition_B(cute.local_tile(b, TILE[1:], (tile_n, None))))
        load_steps(full, empty, (atom_a, *copy_a), (atom_b, *copy_b))
    # TODO: warp MMA_WARP multiplies all steps, with fragments that mma makes of sA and sB
    # TODO: the other warps wait until the accumulator is complete, round and store the tile, and free the tensor memory


@cute.jit
def place(shape):
    """Return the row and column of this block's tile, in tiles. Blocks go down GROUP_M rows of tiles first."""
    block, _, _ = cute.arch.block_idx()
    tiles_m, tiles_n = cute.ceil_div(shape[0], TILE[0]), cute.ceil_div(shape[1], TILE[1])
    first_m, within = block // (GROUP_M * tiles_n) * GROUP_M, block % (GROUP_M * tiles_n)
    group_m = cutlass.min(tiles_m - first_m, GROUP_M)
    return first_m + within % group_m, within // group_m


@cute.jit
def partition(copy: cute.CopyAtom, shared: cute.Tensor, tiles: cute.Tensor):
    """Return tiles [.., step] and stages [.., stage] as the copy expects them. Both are partitioned for the MMA."""
    to_shared, from_tiles = cpasync.tma_partition(
        copy, 0, cute.make_layout(1), cute.group_modes(shared, 0, 3), cute.group_modes(tiles, 0, 3)
    )
    return from_tiles, to_shared


@cute.jit
def load_steps(full, empty, copy_a, copy_b):
    """Load a tile of a and one of b for each step along k, into one stage after the other."""
    (atom_a, tAgA, tAsA), (atom_b, tBgB, tBsB) = copy_a, copy_b
    for k_tile in cutlass.range(cute.size(tAgA, mode=[1]), unroll=1):
        stage, lap = k_tile % STAGES, k_tile // STAGES
        cute.arch.mbarrier_wait(empty + stage, lap % 2 ^ 1)
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(full + stage, 2 * (TILE[0] + TILE[1]) * TILE[2])
        cute.copy(atom_a, tAgA[None, k_tile], tAsA[None, stage], tma_bar_ptr=full + stage)
        cute.copy(atom_b, tBgB[None, k_tile], tBsB[None, stage], tma_bar_ptr=full + stage)


@cute.jit
def multiply_steps(mma, acc, tCrA, tCrB, k_tiles, full, empty, done):
    """Issue the MMAs of all steps. A commit arrives at an mbarrier when the MMAs before it have completed."""
    # TODO: for each step: wait until the stage is full, issue an MMA for each part of 16 along k, commit to empty
    # TODO: commit to done; each commit is executed by one thread


@cute.jit
def round_tile(acc, shared):
    """Load the accumulator, round it, and write it to shared memory [row, column, strip], where TMA can read it."""
    # TODO: divide acc into strips of STRIP columns; load one after the other, round it, and write it to shared memory
    # TODO: a fence between threads and TMA, and a barrier for the epilogue warps


@cute.jit
def store_tile(shared, out, store, tile_m, tile_n):
    """Store the rounded tile: one warp by TMA, or else all threads of the epilogue."""
    tidx, _, _ = cute.arch.thread_idx()
    warp_id = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    if cutlass.const_expr(store is not None):
        save, tiles = store
        if warp_id == 0:
            tile = cute.flat_divide(cute.local_tile(tiles, TILE[:2], (tile_m, tile_n)), (TILE[0], STRIP))
            from_strips, to_out = cpasync.tma_partition(
                save, 0, cute.make_layout(1), cute.group_modes(shared, 0, 2), cute.group_modes(tile, 0, 2)
            )
            for strip in cutlass.range_constexpr(TILE[1] // STRIP):
                cute.copy(save, from_strips[None, strip], to_out[None, 0, strip])
            cute.arch.cp_async_bulk_commit_group()
            cute.arch.cp_async_bulk_wait_group(0, read=True)
    else:
        target = cute.local_tile(out, TILE[:2], (tile_m, tile_n))
        extent = (out.shape[0] - tile_m * TILE[0], out.shape[1] - tile_n * TILE[1])
        for i in cutlass.range(tidx, TILE[0] * TILE[1], EPILOGUE_WARPS * WARP, unroll=1):
            coord = (i // TILE[1], i % TILE[1])
            if cute.elem_less(coord, extent):
                target[coord] = shared[coord[0], coord[1] % STRIP, coord[1] // STRIP]


@cute.jit
def matmul(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor, by_tma: cutlass.Constexpr):
    """Make the tiled MMA, the swizzled layouts and the tensor maps, and launch a block for each tile of out."""
    dtype, k_major = a.element_type, tcgen05.OperandMajorMode.K
    mma = blackwell.make_trivial_tiled_mma(
        dtype, dtype, k_major, k_major, cutlass.Float32, tcgen05.CtaGroup.ONE, TILE[:2]
    )
    layout_a = blackwell.make_smem_layout_a(mma, TILE, dtype, STAGES)
    layout_b = blackwell.make_smem_layout_b(mma, TILE, dtype, STAGES)
    stage_a, stage_b = (cute.select(ring, mode=[0, 1, 2]) for ring in (layout_a, layout_b))
    load = cpasync.CopyBulkTensorTileG2SOp(tcgen05.CtaGroup.ONE)
    atom_a, mA = cute.nvgpu.make_tiled_tma_atom_A(load, a, stage_a, TILE, mma)
    atom_b, mB = cute.nvgpu.make_tiled_tma_atom_B(load, b, stage_b, TILE, mma)
    strip = (TILE[0], STRIP)
    strips = blackwell.make_smem_layout_epi(dtype, LayoutEnum.ROW_MAJOR, strip, TILE[1] // STRIP)
    store = None
    if cutlass.const_expr(by_tma):
        one_strip = cute.select(strips, mode=[0, 1])
        store = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileS2GOp(), out, one_strip, strip)
    multiply(mma, (atom_a, mA, layout_a), (atom_b, mB, layout_b), out, strips, store).launch(
        grid=[cute.ceil_div(out.shape[0], TILE[0]) * cute.ceil_div(out.shape[1], TILE[1]), 1, 1],
        block=[WARPS * WARP, 1, 1],
    )


def tcgen05_gemm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    raise NotImplementedError("TODO: write the parts that are marked, then delete this line")
    out = a.new_empty(a.shape[0], b.shape[0])
    if out.numel() == 0 or a.shape[1] == 0:
        return out.zero_()
    lane.run(matmul, a, b, out, out.shape[1] % 8 == 0)
    return out
