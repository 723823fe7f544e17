"""Pairs of blocks: two blocks share a tile of 256 rows. Each loads half of a and half of b, and one issues all MMAs.

A GEMM for bfloat16 a [m, k] and b [n, k], stored along k, whose sizes are multiples of the tiles. full and empty
are the mbarriers of a stage: full completes when its bytes have arrived, empty when the MMAs that read them are done.
done completes when an accumulator is, vacant when both blocks have loaded it. The leader, which is the block of rank 0,
waits for the full and vacant of its own, and its commits arrive in both blocks.
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
BLOCK_M, BLOCK_N, BLOCK_K = TILE = (256, 256, 64)  # 64 bfloat16 fill the 128 bytes of the widest swizzle
STRIP = 64
ROWS = BLOCK_M // 2  # rows of the tile per block
BOTH = 0b11  # the blocks at which a commit arrives
NUM_STAGES = 4


@cute.kernel
def multiply(mma: cute.TiledMma, tma_a, tma_b, out: cute.Tensor):
    (atom_a, a, layout_a), (atom_b, b, layout_b) = tma_a, tma_b
    block, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
    warp_id = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    memory = SmemAllocator()
    full, empty = (memory.allocate_array(cutlass.Int64, NUM_STAGES) for _ in range(2))
    done, vacant = (memory.allocate_array(cutlass.Int64, 2) for _ in range(2))
    sA = memory.allocate_tensor(atom_a.value_type, layout_a.outer, 1024, layout_a.inner)
    sB = memory.allocate_tensor(atom_b.value_type, layout_b.outer, 1024, layout_b.inner)
    if warp_id == TMA_WARP:
        with cute.arch.elect_one():
            for stage in cutlass.range_constexpr(NUM_STAGES):
                cute.arch.mbarrier_init(full + stage, 1)
                cute.arch.mbarrier_init(empty + stage, 1)
            for index in cutlass.range_constexpr(2):
                cute.arch.mbarrier_init(done + index, 1)
                cute.arch.mbarrier_init(vacant + index, 2 * EPILOGUE_THREADS // 32)
        cute.arch.mbarrier_init_fence()
    tensor_memory = TmemAllocator(barrier_for_retrieve=pipeline.NamedBarrier(1, THREADS), is_two_cta=True)
    tensor_memory.allocate(2 * BLOCK_N)
    cute.arch.cluster_arrive_relaxed()  # the peer's mbarriers and tensor memory must be ready, too
    cute.arch.cluster_wait()
    tensor_memory.wait_for_alloc()
    address = tensor_memory.retrieve_ptr(cutlass.Float32)
    shape = cute.append(mma.partition_shape_C(TILE[:2]), 2)
    accs = cute.make_tensor(address, mma.make_fragment_C(shape).layout)
    tiles_m, tiles_n = out.shape[0] // BLOCK_M, out.shape[1] // BLOCK_N
    tiles = block // 2, tiles_m * tiles_n, blocks // 2

    tAgA, tAsA = partition(atom_a, sA, mma.get_slice(rank).partition_A(cute.local_tile(a, TILE[::2], (None, None))))
    tBgB, tBsB = partition(atom_b, sB, mma.get_slice(rank).partition_B(cute.local_tile(b, TILE[1:], (None, None))))
    fragment_a, fragment_b = mma.make_fragment_A(sA), mma.make_fragment_B(sB)
    if warp_id == TMA_WARP:
        load(tiles, rank, full, empty, (atom_a, tAgA, tAsA), (atom_b, tBgB, tBsB))
    elif warp_id == MMA_WARP:
        if rank == 0:
            k_tiles = cute.size(tAgA, mode=[2])
            multiply_tiles(tiles, mma, accs, fragment_a, fragment_b, k_tiles, (full, empty, done, vacant))
    else:
        count = cutlass.Int32(0)
        for tile in cutlass.range(tiles[0], tiles[1], tiles[2], unroll=1):
            index = count % 2
            cute.arch.mbarrier_wait(done + index, count // 2 % 2)
            target = cute.local_tile(out, (ROWS, BLOCK_N), (tile % tiles_m * 2 + rank, tile // tiles_m))
            store(accs[(None, None), 0, 0, index], target)
            cute.arch.fence_view_async_tmem_load()
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive(vacant + index, 0)
            count += 1
        cute.arch.barrier(barrier_id=2, number_of_threads=EPILOGUE_THREADS)  # all warps have loaded their lanes
        tensor_memory.relinquish_alloc_permit()
        tensor_memory.free(address)
    cute.arch.cluster_arrive()  # a commit or the peer may still arrive at the mbarriers of a block that is done
    cute.arch.cluster_wait()


@cute.jit
def load(tiles, rank, full, empty, tma_a, tma_b):
    """The TMA warp: wait until a stage is empty, and load a k-tile into it. It goes on with the next tile at once."""
    (atom_a, tAgA, tAsA), (atom_b, tBgB, tBsB) = tma_a, tma_b
    tiles_m = cute.size(tAgA, mode=[1])
    count = cutlass.Int32(0)
    for tile in cutlass.range(tiles[0], tiles[1], tiles[2], unroll=1):
        for k_tile in cutlass.range(cute.size(tAgA, mode=[2]), unroll=1):
            stage = count % NUM_STAGES
            cute.arch.mbarrier_wait(empty + stage, count // NUM_STAGES % 2 ^ 1)
            if rank == 0:
                with cute.arch.elect_one():
                    cute.arch.mbarrier_arrive_and_expect_tx(full + stage, 2 * (BLOCK_M + BLOCK_N) * BLOCK_K)
            cute.copy(atom_a, tAgA[None, tile % tiles_m, k_tile], tAsA[None, stage], tma_bar_ptr=full + stage)
            cute.copy(atom_b, tBgB[None, tile // tiles_m, k_tile], tBsB[None, stage], tma_bar_ptr=full + stage)
            count += 1


@cute.jit
def multiply_tiles(tiles, mma, accs, fragment_a, fragment_b, k_tiles, barriers):
    """The MMA warp: wait until an accumulator is vacant, and issue the MMAs of a tile to it."""
    full, empty, done, vacant = barriers
    count, tile_count = cutlass.Int32(0), cutlass.Int32(0)
    for _ in cutlass.range(tiles[0], tiles[1], tiles[2], unroll=1):
        index = tile_count % 2
        acc = accs[None, None, None, index]
        cute.arch.mbarrier_wait(vacant + index, tile_count // 2 % 2 ^ 1)
        for k_tile in cutlass.range(k_tiles, unroll=1):
            stage = count % NUM_STAGES
            cute.arch.mbarrier_wait(full + stage, count // NUM_STAGES % 2)
            for k in cutlass.range_constexpr(BLOCK_K // 16):
                mma.set(tcgen05.Field.ACCUMULATE, k_tile > 0 or k > 0)
                cute.gemm(mma, acc, fragment_a[None, None, k, stage], fragment_b[None, None, k, stage], acc)
            with cute.arch.elect_one():
                tcgen05.commit(empty + stage, BOTH, tcgen05.CtaGroup.TWO)
            count += 1
        with cute.arch.elect_one():
            tcgen05.commit(done + index, BOTH, tcgen05.CtaGroup.TWO)
        tile_count += 1


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
    strips, targets = (cute.flat_divide(tile, (ROWS, STRIP)) for tile in (acc, target))
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
def launch(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor, num_sms: cutlass.Int32):
    dtype, k_major = a.element_type, tcgen05.OperandMajorMode.K
    pair = tcgen05.CtaGroup.TWO
    mma = blackwell.make_trivial_tiled_mma(dtype, dtype, k_major, k_major, cutlass.Float32, pair, TILE[:2])
    layout_a = blackwell.make_smem_layout_a(mma, TILE, dtype, NUM_STAGES)
    layout_b = blackwell.make_smem_layout_b(mma, TILE, dtype, NUM_STAGES)
    copy = cpasync.CopyBulkTensorTileG2SOp(pair)
    stage_a, stage_b = (cute.select(layout, mode=[0, 1, 2]) for layout in (layout_a, layout_b))
    cluster = cute.tiled_divide(cute.make_layout((2, 1, 1)), (mma.thr_id.shape,)).shape
    tma_a = *cute.nvgpu.make_tiled_tma_atom_A(copy, a, stage_a, TILE, mma, cluster), layout_a
    tma_b = *cute.nvgpu.make_tiled_tma_atom_B(copy, b, stage_b, TILE, mma, cluster), layout_b
    pairs = cutlass.min(num_sms // 2, out.shape[0] // BLOCK_M * (out.shape[1] // BLOCK_N))
    multiply(mma, tma_a, tma_b, out).launch(grid=[2 * pairs, 1, 1], block=[THREADS, 1, 1], cluster=[2, 1, 1])


def tcgen05_gemm(a: torch.Tensor, b: torch.Tensor, processors: int = 0) -> torch.Tensor:
    """Multiply with a block on each multiprocessor, or on at most `processors` of them."""
    out = a.new_empty(a.shape[0], b.shape[0])
    device = a.device if a.is_cuda else None
    lane.run(launch, a, b, out, processors or torch.cuda.get_device_properties(device).multi_processor_count)
    return out
