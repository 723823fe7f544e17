"""Roles: one warp loads, one issues MMAs, and four wait for the accumulator. Only mbarriers synchronize them.

A GEMM for bfloat16 a [m, k] and b [n, k], stored along k, whose sizes are multiples of the tiles. full and empty
are the mbarriers of a stage: full completes when its bytes have arrived, empty when the MMAs that read them are done.
done completes when the accumulator is.
"""

import cutlass
import cutlass.utils.blackwell_helpers as blackwell
import torch
from cutlass import cute, pipeline
from cutlass.cute.nvgpu import cpasync, tcgen05
from cutlass.memory import SmemAllocator, TmemAllocator

from kernelpath.lanes import cute as lane

EPILOGUE_THREADS = 128
MMA_WARP, TMA_WARP, THREADS = 4, 5, 192
BLOCK_M, BLOCK_N, BLOCK_K = TILE = (128, 256, 64)  # 64 bfloat16 fill the 128 bytes of the widest swizzle
STRIP = 64
NUM_STAGES = 4


@cute.kernel
def multiply(mma: cute.TiledMma, tma_a, tma_b, out: cute.Tensor):
    (atom_a, a, layout_a), (atom_b, b, layout_b) = tma_a, tma_b
    tile_m, tile_n, _ = cute.arch.block_idx()
    warp_id = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    memory = SmemAllocator()
    full, empty = (memory.allocate_array(cutlass.Int64, NUM_STAGES) for _ in range(2))
    done = memory.allocate_array(cutlass.Int64, 1)
    sA = memory.allocate_tensor(atom_a.value_type, layout_a.outer, 1024, layout_a.inner)
    sB = memory.allocate_tensor(atom_b.value_type, layout_b.outer, 1024, layout_b.inner)
    if warp_id == TMA_WARP:
        with cute.arch.elect_one():
            for stage in cutlass.range_constexpr(NUM_STAGES):
                cute.arch.mbarrier_init(full + stage, 1)
                cute.arch.mbarrier_init(empty + stage, 1)
            cute.arch.mbarrier_init(done, 1)
        cute.arch.mbarrier_init_fence()
    tensor_memory = TmemAllocator(barrier_for_retrieve=pipeline.NamedBarrier(1, THREADS))
    tensor_memory.allocate(BLOCK_N)
    tensor_memory.wait_for_alloc()
    address = tensor_memory.retrieve_ptr(cutlass.Float32)
    acc = cute.make_tensor(address, mma.make_fragment_C(mma.partition_shape_C(TILE[:2])).layout)

    tAgA, tAsA = partition(atom_a, sA, mma.get_slice(0).partition_A(cute.local_tile(a, TILE[::2], (tile_m, None))))
    tBgB, tBsB = partition(atom_b, sB, mma.get_slice(0).partition_B(cute.local_tile(b, TILE[1:], (tile_n, None))))
    fragment_a, fragment_b = mma.make_fragment_A(sA), mma.make_fragment_B(sB)
    if warp_id == TMA_WARP:
        load(full, empty, (atom_a, tAgA, tAsA), (atom_b, tBgB, tBsB))
    elif warp_id == MMA_WARP:
        multiply_k_tiles(mma, acc, fragment_a, fragment_b, cute.size(tAgA, mode=[1]), full, empty, done)
    else:
        cute.arch.mbarrier_wait(done, 0)
        store(acc[(None, None), 0, 0], cute.local_tile(out, TILE[:2], (tile_m, tile_n)))
        cute.arch.barrier(barrier_id=2, number_of_threads=EPILOGUE_THREADS)  # all warps have loaded their lanes
        tensor_memory.relinquish_alloc_permit()
        tensor_memory.free(address)


@cute.jit
def load(full, empty, tma_a, tma_b):
    """The TMA warp: wait until a stage is empty, and load a k-tile into it."""
    (atom_a, tAgA, tAsA), (atom_b, tBgB, tBsB) = tma_a, tma_b
    for k_tile in cutlass.range(cute.size(tAgA, mode=[1]), unroll=1):
        stage = k_tile % NUM_STAGES
        cute.arch.mbarrier_wait(empty + stage, k_tile // NUM_STAGES % 2 ^ 1)
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(full + stage, 2 * (BLOCK_M + BLOCK_N) * BLOCK_K)
        cute.copy(atom_a, tAgA[None, k_tile], tAsA[None, stage], tma_bar_ptr=full + stage)
        cute.copy(atom_b, tBgB[None, k_tile], tBsB[None, stage], tma_bar_ptr=full + stage)


@cute.jit
def multiply_k_tiles(mma, acc, fragment_a, fragment_b, k_tiles, full, empty, done):
    """The MMA warp: wait until a stage is full, issue its MMAs, and commit."""
    for k_tile in cutlass.range(k_tiles, unroll=1):
        stage = k_tile % NUM_STAGES
        cute.arch.mbarrier_wait(full + stage, k_tile // NUM_STAGES % 2)
        for k in cutlass.range_constexpr(BLOCK_K // 16):
            mma.set(tcgen05.Field.ACCUMULATE, k_tile > 0 or k > 0)
            cute.gemm(mma, acc, fragment_a[None, None, k, stage], fragment_b[None, None, k, stage], acc)
        with cute.arch.elect_one():
            tcgen05.commit(empty + stage)
    with cute.arch.elect_one():
        tcgen05.commit(done)


@cute.jit
def partition(atom: cute.CopyAtom, shared: cute.Tensor, tiles: cute.Tensor):
    to_shared, from_tiles = cpasync.tma_partition(
        atom, 0, cute.make_layout(1), cute.group_modes(shared, 0, 3), cute.group_modes(tiles, 0, 3)
    )
    return from_tiles, to_shared


@cute.jit
def store(acc, target):
    """Load the accumulator, a strip of columns at a time, and store it: a thread has a row of the tile."""
    tid, _, _ = cute.arch.thread_idx()
    strips, targets = (cute.flat_divide(tile, (BLOCK_M, STRIP)) for tile in (acc, target))
    atom = cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition(STRIP)), cutlass.Float32)
    load = tcgen05.make_tmem_copy(atom, strips[None, None, 0, 0]).get_slice(tid)
    tTs, tTg = load.partition_S(strips), load.partition_D(targets)
    for strip in cutlass.range_constexpr(BLOCK_N // STRIP):
        loaded = cute.make_rmem_tensor(tTg[None, None, None, 0, strip].shape, cutlass.Float32)
        cute.copy(load, tTs[None, None, None, 0, strip], loaded)
        rounded = cute.make_rmem_tensor_like(loaded, target.element_type)
        rounded.store(loaded.load().to(target.element_type))
        cute.autovec_copy(rounded, tTg[None, None, None, 0, strip])


@cute.jit
def launch(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor):
    dtype, k_major = a.element_type, tcgen05.OperandMajorMode.K
    one = tcgen05.CtaGroup.ONE
    mma = blackwell.make_trivial_tiled_mma(dtype, dtype, k_major, k_major, cutlass.Float32, one, TILE[:2])
    layout_a = blackwell.make_smem_layout_a(mma, TILE, dtype, NUM_STAGES)
    layout_b = blackwell.make_smem_layout_b(mma, TILE, dtype, NUM_STAGES)
    copy = cpasync.CopyBulkTensorTileG2SOp(one)
    stage_a, stage_b = (cute.select(layout, mode=[0, 1, 2]) for layout in (layout_a, layout_b))
    tma_a = *cute.nvgpu.make_tiled_tma_atom_A(copy, a, stage_a, TILE, mma), layout_a
    tma_b = *cute.nvgpu.make_tiled_tma_atom_B(copy, b, stage_b, TILE, mma), layout_b
    grid = [out.shape[0] // BLOCK_M, out.shape[1] // BLOCK_N, 1]
    multiply(mma, tma_a, tma_b, out).launch(grid=grid, block=[THREADS, 1, 1])


def tcgen05_gemm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    out = a.new_empty(a.shape[0], b.shape[0])
    lane.run(launch, a, b, out)
    return out
