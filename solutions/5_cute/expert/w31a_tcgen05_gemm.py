"""Multiply matrices with tcgen05.mma in pairs of blocks, and store a tile while the next one is being multiplied.

tcgen05_gemm(a, b) returns a @ b.T in bfloat16, with float32 accumulators that are rounded once. a is m x k and b is n x
k, both contiguous bfloat16 with addresses that are multiples of 16 bytes. m and n may be any positive number, and k is
a multiple of 8.

Two blocks form a pair with a tile of 256 x 256. Each holds 128 rows of the tile in its own tensor memory, and loads 128
rows of a and 128 rows of b. One thread of the even block, the leader, issues the MMAs for both blocks, which read b
from both. So a block loads 32 KB per step along k, while an unpaired block with a tile of 128 x 256 loads 48 KB.

A pair is persistent, and its tensor memory has two accumulators. The next tile's MMAs start while the epilogue warps
are still loading the last tile. All commits arrive in both blocks. The leader waits for `full` and `vacant`, which are
its own mbarriers.

Bound: 2 m n k operations, 128 per byte that TMA loads. The kernel hasn't been timed on a B200 or confirmed on hardware.
The roles follow CUTLASS's tutorial_gemm for Blackwell.
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
# Rows and columns of a pair's tile of out, and columns of a and b in a stage.
TILE = (256, 256, 64)
# Rows of the tile in one block.
ROWS = TILE[0] // 2
STAGES, ACCUMULATORS, STRIP, GROUP_M = 5, 2, 64, 4
# The blocks at which a commit arrives.
BOTH = 0b11
EPILOGUE_WARPS, MMA_WARP, TMA_WARP, WARPS = 4, 4, 5, 6


@cute.kernel
def multiply(mma: cute.TiledMma, a, b, out: cute.Tensor, strips, store):
    """Compute this pair's tiles of out. a, b: copy, TMA tensor, and layout of the ring. store: as in the answer."""
    (atom_a, a, layout_a), (atom_b, b, layout_b) = a, b
    warp_id = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())

    memory = SmemAllocator()
    full, empty = (memory.allocate_array(cutlass.Int64, STAGES) for _ in range(2))
    done, vacant = (memory.allocate_array(cutlass.Int64, ACCUMULATORS) for _ in range(2))
    sA = memory.allocate_tensor(atom_a.value_type, layout_a.outer, 1024, layout_a.inner)
    sB = memory.allocate_tensor(atom_b.value_type, layout_b.outer, 1024, layout_b.inner)
    sC = memory.allocate_tensor(out.element_type, strips.outer, 1024, strips.inner)
    if warp_id == TMA_WARP:
        with cute.arch.elect_one():
            for stage in cutlass.range_constexpr(STAGES):
                cute.arch.mbarrier_init(full + stage, 1)
                cute.arch.mbarrier_init(empty + stage, 1)
            for index in cutlass.range_constexpr(ACCUMULATORS):
                cute.arch.mbarrier_init(done + index, 1)
                cute.arch.mbarrier_init(vacant + index, 2 * EPILOGUE_WARPS)
        cute.arch.mbarrier_init_fence()
    tensor_memory = TmemAllocator(barrier_for_retrieve=pipeline.NamedBarrier(1, WARPS * WARP), is_two_cta=True)
    tensor_memory.allocate(ACCUMULATORS * TILE[1])
    cute.arch.cluster_arrive_relaxed()  # the peer's mbarriers and tensor memory must be ready, too
    cute.arch.cluster_wait()
    tensor_memory.wait_for_alloc()
    address = tensor_memory.retrieve_ptr(cutlass.Float32)
    shape = cute.append(mma.partition_shape_C(TILE[:2]), ACCUMULATORS)
    accs = cute.make_tensor(address, mma.make_fragment_C(shape).layout)

    block, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    tiles_m, tiles_n = cute.ceil_div(out.shape[0], TILE[0]), cute.ceil_div(out.shape[1], TILE[1])
    tiles = block // 2, tiles_m * tiles_n, blocks // 2, tiles_m, tiles_n
    k_tiles = cute.ceil_div(a.shape[1], TILE[2])
    if warp_id == TMA_WARP:
        thr_mma = mma.get_slice(rank)
        copy_a = partition(atom_a, sA, thr_mma.partition_A(cute.local_tile(a, TILE[::2], (None, None))))
        copy_b = partition(atom_b, sB, thr_mma.partition_B(cute.local_tile(b, TILE[1:], (None, None))))
        load_tiles(tiles, k_tiles, rank, full, empty, (atom_a, *copy_a), (atom_b, *copy_b))
    elif warp_id == MMA_WARP:
        if rank == 0:
            fragments = mma.make_fragment_A(sA), mma.make_fragment_B(sB)
            multiply_tiles(tiles, k_tiles, mma, accs, fragments, (full, empty), (done, vacant))
    else:
        store_tiles(tiles, rank, accs, sC, out, store, done, vacant)
        tensor_memory.relinquish_alloc_permit()
        cute.arch.barrier(barrier_id=2, number_of_threads=EPILOGUE_WARPS * WARP)  # all lanes are loaded
        tensor_memory.free(address)
    cute.arch.cluster_arrive()  # a commit or the peer may still arrive at the mbarriers of a block that is done
    cute.arch.cluster_wait()


@cute.jit
def place(number, tiles_m, tiles_n):
    """Return the row and column of a tile, in tiles. Pairs go down GROUP_M rows of tiles before the next column."""
    first_m, within = number // (GROUP_M * tiles_n) * GROUP_M, number % (GROUP_M * tiles_n)
    group_m = cutlass.min(tiles_m - first_m, GROUP_M)
    return first_m + within % group_m, within // group_m


@cute.jit
def partition(copy: cute.CopyAtom, shared: cute.Tensor, tiles: cute.Tensor):
    """Return tiles [.., tile, step] and stages [.., stage] as the copy expects them."""
    to_shared, from_tiles = cpasync.tma_partition(
        copy, 0, cute.make_layout(1), cute.group_modes(shared, 0, 3), cute.group_modes(tiles, 0, 3)
    )
    return from_tiles, to_shared


@cute.jit
def load_tiles(tiles, k_tiles, rank, full, empty, copy_a, copy_b):
    """Load this block's parts of a and b. The copies of both blocks complete the leader's `full`."""
    (first, last, stride, tiles_m, tiles_n) = tiles
    (atom_a, tAgA, tAsA), (atom_b, tBgB, tBsB) = copy_a, copy_b
    count = cutlass.Int32(0)
    for number in cutlass.range(first, last, stride, unroll=1):
        tile_m, tile_n = place(number, tiles_m, tiles_n)
        for k_tile in cutlass.range(k_tiles, unroll=1):
            stage, lap = count % STAGES, count // STAGES
            cute.arch.mbarrier_wait(empty + stage, lap % 2 ^ 1)
            if rank == 0:
                with cute.arch.elect_one():
                    cute.arch.mbarrier_arrive_and_expect_tx(full + stage, 2 * (TILE[0] + TILE[1]) * TILE[2])
            cute.copy(atom_a, tAgA[None, tile_m, k_tile], tAsA[None, stage], tma_bar_ptr=full + stage)
            cute.copy(atom_b, tBgB[None, tile_n, k_tile], tBsB[None, stage], tma_bar_ptr=full + stage)
            count += 1


@cute.jit
def multiply_tiles(tiles, k_tiles, mma, accs, fragments, ring, accumulators):
    """Issue the MMAs of both blocks. Each commit arrives at the mbarriers of both."""
    (first, last, stride, _, _), (a, b) = tiles, fragments
    (full, empty), (done, vacant) = ring, accumulators
    count, tile = cutlass.Int32(0), cutlass.Int32(0)
    for _ in cutlass.range(first, last, stride, unroll=1):
        index = tile % ACCUMULATORS
        acc = accs[None, None, None, index]
        cute.arch.mbarrier_wait(vacant + index, tile // ACCUMULATORS % 2 ^ 1)
        for k_tile in cutlass.range(k_tiles, unroll=1):
            stage = count % STAGES
            cute.arch.mbarrier_wait(full + stage, count // STAGES % 2)
            for k in cutlass.range_constexpr(cute.size(a, mode=[2])):
                mma.set(tcgen05.Field.ACCUMULATE, k_tile > 0 or k > 0)
                cute.gemm(mma, acc, a[None, None, k, stage], b[None, None, k, stage], acc)
            with cute.arch.elect_one():
                tcgen05.commit(empty + stage, BOTH, tcgen05.CtaGroup.TWO)
            count += 1
        with cute.arch.elect_one():
            tcgen05.commit(done + index, BOTH, tcgen05.CtaGroup.TWO)
        tile += 1


@cute.jit
def store_tiles(tiles, rank, accs, shared, out, store, done, vacant):
    """Round this block's rows of each tile, tell the leader that the accumulator is vacant, and store them."""
    (first, last, stride, tiles_m, tiles_n) = tiles
    warp_id = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    tile = cutlass.Int32(0)
    for number in cutlass.range(first, last, stride, unroll=1):
        tile_m, tile_n = place(number, tiles_m, tiles_n)
        index = tile % ACCUMULATORS
        if warp_id == 0:
            cute.arch.cp_async_bulk_wait_group(0, read=True)
        cute.arch.barrier(barrier_id=2, number_of_threads=EPILOGUE_WARPS * WARP)  # the last tile is stored
        cute.arch.mbarrier_wait(done + index, tile // ACCUMULATORS % 2)
        round_tile(accs[(None, None), 0, 0, index], shared)
        cute.arch.fence_view_async_tmem_load()
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive(vacant + index, 0)
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.barrier(barrier_id=2, number_of_threads=EPILOGUE_WARPS * WARP)
        store_tile(shared, out, store, 2 * tile_m + rank, tile_n)
        tile += 1
    if warp_id == 0:
        cute.arch.cp_async_bulk_wait_group(0, read=True)


@cute.jit
def round_tile(acc, shared):
    """Load the accumulator [row, column], round it, and write it to shared memory [row, column, strip]."""
    tidx, _, _ = cute.arch.thread_idx()
    strips = cute.flat_divide(acc, (ROWS, STRIP))
    load = cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition(STRIP)), cutlass.Float32)
    from_acc = tcgen05.make_tmem_copy(load, strips[None, None, 0, 0]).get_slice(tidx)
    sources, targets = from_acc.partition_S(strips), from_acc.partition_D(shared)
    for strip in cutlass.range_constexpr(TILE[1] // STRIP):
        loaded = cute.make_rmem_tensor(targets[None, None, None, 0].shape, cutlass.Float32)
        cute.copy(from_acc, sources[None, None, None, 0, strip], loaded)
        rounded = cute.make_rmem_tensor_like(loaded, shared.element_type)
        rounded.store(loaded.load().to(shared.element_type))
        cute.autovec_copy(rounded, targets[None, None, None, strip])


@cute.jit
def store_tile(shared, out, store, tile_m, tile_n):
    """Store the rounded tile: one warp by TMA, or else all threads of the epilogue."""
    tidx, _, _ = cute.arch.thread_idx()
    warp_id = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    if cutlass.const_expr(store is not None):
        save, tiles = store
        if warp_id == 0:
            tile = cute.flat_divide(cute.local_tile(tiles, (ROWS, TILE[1]), (tile_m, tile_n)), (ROWS, STRIP))
            from_strips, to_out = cpasync.tma_partition(
                save, 0, cute.make_layout(1), cute.group_modes(shared, 0, 2), cute.group_modes(tile, 0, 2)
            )
            for strip in cutlass.range_constexpr(TILE[1] // STRIP):
                cute.copy(save, from_strips[None, strip], to_out[None, 0, strip])
            cute.arch.cp_async_bulk_commit_group()
    else:
        target = cute.local_tile(out, (ROWS, TILE[1]), (tile_m, tile_n))
        extent = (out.shape[0] - tile_m * ROWS, out.shape[1] - tile_n * TILE[1])
        for i in cutlass.range(tidx, ROWS * TILE[1], EPILOGUE_WARPS * WARP, unroll=1):
            coord = (i // TILE[1], i % TILE[1])
            if cute.elem_less(coord, extent):
                target[coord] = shared[coord[0], coord[1] % STRIP, coord[1] // STRIP]


@cute.jit
def matmul(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor, num_sms: cutlass.Int32, by_tma: cutlass.Constexpr):
    """Make the tiled MMA of a pair, the layouts and the tensor maps, and launch a pair for two multiprocessors."""
    dtype, k_major = a.element_type, tcgen05.OperandMajorMode.K
    pair = tcgen05.CtaGroup.TWO
    mma = blackwell.make_trivial_tiled_mma(dtype, dtype, k_major, k_major, cutlass.Float32, pair, TILE[:2])
    layout_a = blackwell.make_smem_layout_a(mma, TILE, dtype, STAGES)
    layout_b = blackwell.make_smem_layout_b(mma, TILE, dtype, STAGES)
    stage_a, stage_b = (cute.select(ring, mode=[0, 1, 2]) for ring in (layout_a, layout_b))
    load = cpasync.CopyBulkTensorTileG2SOp(pair)
    cluster = cute.tiled_divide(cute.make_layout((2, 1, 1)), (mma.thr_id.shape,)).shape
    atom_a, mA = cute.nvgpu.make_tiled_tma_atom_A(load, a, stage_a, TILE, mma, cluster)
    atom_b, mB = cute.nvgpu.make_tiled_tma_atom_B(load, b, stage_b, TILE, mma, cluster)
    strip = (ROWS, STRIP)
    strips = blackwell.make_smem_layout_epi(dtype, LayoutEnum.ROW_MAJOR, strip, TILE[1] // STRIP)
    store = None
    if cutlass.const_expr(by_tma):
        one_strip = cute.select(strips, mode=[0, 1])
        store = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileS2GOp(), out, one_strip, strip)
    tiles = cute.ceil_div(out.shape[0], TILE[0]) * cute.ceil_div(out.shape[1], TILE[1])
    multiply(mma, (atom_a, mA, layout_a), (atom_b, mB, layout_b), out, strips, store).launch(
        grid=[2 * cutlass.min(num_sms // 2, tiles), 1, 1], block=[WARPS * WARP, 1, 1], cluster=[2, 1, 1]
    )


def tcgen05_gemm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    out = a.new_empty(a.shape[0], b.shape[0])
    if out.numel() == 0 or a.shape[1] == 0:
        return out.zero_()
    num_sms = torch.cuda.get_device_properties(a.device if a.is_cuda else None).multi_processor_count
    lane.run(matmul, a, b, out, num_sms, out.shape[1] % 8 == 0)
    return out
