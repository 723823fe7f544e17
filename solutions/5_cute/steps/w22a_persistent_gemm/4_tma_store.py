"""TMA store: the accumulators go out through swizzled shared memory, 64 x 64 at a time.

A GEMM for bfloat16 a [m, k] and b [k, n], row-major, whose sizes are multiples of the tiles. full and empty are the
mbarriers of a stage: full completes when its bytes have arrived, empty when its readers are done.
"""

import cutlass
import cutlass.utils.hopper_helpers as hopper
import torch
from cutlass import cute
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum

from kernelpath.lanes import cute as lane

WARPGROUP = 128
BLOCK_M, BLOCK_N, BLOCK_K = 128, 256, 64  # 64 bfloat16 fill the 128 bytes of the widest swizzle
NUM_STAGES = 4
CONSUMERS = 2
EPI_TILE = (64, 64)  # a consumer stores 64 rows of 128 bytes at a time


@cute.jit
def load(k_tile, count, tile_m, tile_n, full, empty, tma_a, tma_b):
    """Start the copies of a k-tile to the stage that is `count` tiles from the first one."""
    (atom_a, tAgA, tAsA), (atom_b, tBgB, tBsB) = tma_a, tma_b
    stage = count % NUM_STAGES
    # The opposite parity: in the first round, when every stage is empty, the wait for the phase before the first one
    # returns at once. Source: PTX ISA, "mbarrier.test_wait, mbarrier.try_wait", .parity.
    cute.arch.mbarrier_wait(empty + stage, count // NUM_STAGES % 2 ^ 1)
    with cute.arch.elect_one():
        cute.arch.mbarrier_arrive_and_expect_tx(full + stage, 2 * BLOCK_K * (BLOCK_M + BLOCK_N))
    cute.copy(atom_a, tAgA[None, tile_m, k_tile], tAsA[None, stage], tma_bar_ptr=full + stage)
    cute.copy(atom_b, tBgB[None, tile_n, k_tile], tBsB[None, stage], tma_bar_ptr=full + stage)


@cute.jit
def store(acc, tile_m, tile_n, tidx, epilogue):
    """Store a consumer's accumulators chunk by chunk. Both consumers wait until a copy has read shared memory."""
    atom, gC, sC, chunk_mma = epilogue
    consumer = cute.arch.make_warp_uniform(tidx // WARPGROUP)
    is_leader = cute.arch.make_warp_uniform(tidx // 32) % 4 == 0
    sC = cute.local_tile(sC, (*EPI_TILE, 1), (0, 0, consumer))
    stmatrix = hopper.sm90_get_smem_store_op(LayoutEnum.ROW_MAJOR, atom.value_type, cutlass.Float32)
    to_smem = cute.make_tiled_copy_C(stmatrix, chunk_mma).get_slice(tidx % WARPGROUP)
    tCsC, tCgC = cpasync.tma_partition(
        atom, 0, cute.make_layout(1), cute.group_modes(sC, 0, 2),
        cute.group_modes(cute.local_tile(gC, EPI_TILE, (None, None)), 0, 2),
    )  # fmt: skip
    chunk_acc = cute.make_rmem_tensor(chunk_mma.partition_shape_C(EPI_TILE), cutlass.Float32)
    rounded = cute.make_rmem_tensor_like(chunk_acc, atom.value_type)
    for chunk in cutlass.range_constexpr(BLOCK_N // EPI_TILE[1]):
        for i in cutlass.range_constexpr(cute.size(chunk_acc)):
            chunk_acc[i] = acc[chunk * cute.size(chunk_acc) + i]
        rounded.store(chunk_acc.load().to(atom.value_type))
        if is_leader:
            cute.arch.cp_async_bulk_wait_group(0, read=True)
        cute.arch.barrier(barrier_id=1, number_of_threads=CONSUMERS * WARPGROUP)
        cute.copy(stmatrix, to_smem.retile(rounded), to_smem.partition_D(sC)[None, None, None, 0])
        # TMA reads shared memory through the async proxy, to which the threads' stores are not visible without this
        # fence. Source: PTX ISA, "Async proxy".
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.barrier(barrier_id=1, number_of_threads=CONSUMERS * WARPGROUP)
        if is_leader:
            chunk_n = tile_n * (BLOCK_N // EPI_TILE[1]) + chunk
            cute.copy(atom, tCsC[None, 0], tCgC[None, tile_m * CONSUMERS + consumer, chunk_n])
            cute.arch.cp_async_bulk_commit_group()
    if is_leader:
        cute.arch.cp_async_bulk_wait_group(0, read=True)
    cute.arch.barrier(barrier_id=1, number_of_threads=CONSUMERS * WARPGROUP)


@cute.kernel
def kernel(tiled_mma, chunk_mma, layouts, tma_a, tma_b, tma_c):
    (layout_a, layout_b, layout_c), (atom_a, mA), (atom_b, mB), (atom_c, mC) = layouts, tma_a, tma_b, tma_c
    tidx, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    warp_id = cute.arch.make_warp_uniform(tidx // 32)
    smem = SmemAllocator()
    full = smem.allocate_array(cutlass.Int64, NUM_STAGES)
    empty = smem.allocate_array(cutlass.Int64, NUM_STAGES)
    # A swizzle of 128 bytes repeats after 8 rows, so wgmma and TMA take tiles that begin at a multiple of 1024 bytes.
    # Source: PTX ISA, "Matrix Descriptor Format", base offset.
    sA = smem.allocate_tensor(atom_a.value_type, layout_a.outer, 1024, layout_a.inner)
    sB = smem.allocate_tensor(atom_b.value_type, layout_b.outer, 1024, layout_b.inner)
    sC = smem.allocate_tensor(atom_c.value_type, layout_c.outer, 1024, layout_c.inner)
    if warp_id == 0:
        with cute.arch.elect_one():
            for stage in cutlass.range_constexpr(NUM_STAGES):
                # full: the thread that issues the copies arrives. empty: a lane of each consumer warp arrives.
                cute.arch.mbarrier_init(full + stage, 1)
                cute.arch.mbarrier_init(empty + stage, 4 * CONSUMERS)
        cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()

    tiles_n = mC.shape[1] // BLOCK_N
    tile_m, tile_n = block // tiles_n, block % tiles_n
    # At least 1: if the loop over k could end at once, the compiler would round the accumulators before the last wait.
    k_tiles = cutlass.max(mA.shape[1] // BLOCK_K, 1)
    gA = cute.local_tile(mA, (BLOCK_M, BLOCK_K), (None, None))
    gB = cute.local_tile(mB, (BLOCK_N, BLOCK_K), (None, None))
    tAsA, tAgA = cpasync.tma_partition(
        atom_a, 0, cute.make_layout(1), cute.group_modes(sA, 0, 2), cute.group_modes(gA, 0, 2)
    )
    tBsB, tBgB = cpasync.tma_partition(
        atom_b, 0, cute.make_layout(1), cute.group_modes(sB, 0, 2), cute.group_modes(gB, 0, 2)
    )
    tma_a, tma_b = (atom_a, tAgA, tAsA), (atom_b, tBgB, tBsB)

    if warp_id < 4:
        # 128 threads with 40 registers and 256 with 232 need 64,512 of the SM's 65,536.
        cute.arch.setmaxregister_decrease(40)
        if warp_id == 0:
            for k_tile in cutlass.range(k_tiles, unroll=1):
                load(k_tile, k_tile, tile_m, tile_n, full, empty, tma_a, tma_b)
    else:
        cute.arch.setmaxregister_increase(232)
        thr_mma = tiled_mma.get_slice(tidx - WARPGROUP)
        tCrA = tiled_mma.make_fragment_A(thr_mma.partition_A(sA))
        tCrB = tiled_mma.make_fragment_B(thr_mma.partition_B(sB))
        acc = cute.make_rmem_tensor(tiled_mma.partition_shape_C((BLOCK_M, BLOCK_N)), cutlass.Float32)
        for k_tile in cutlass.range(k_tiles, unroll=1):
            stage = k_tile % NUM_STAGES
            cute.arch.mbarrier_wait(full + stage, k_tile // NUM_STAGES % 2)
            warpgroup.fence()
            tiled_mma.set(warpgroup.Field.ACCUMULATE, k_tile > 0)
            for k in cutlass.range_constexpr(BLOCK_K // 16):
                cute.gemm(tiled_mma, acc, tCrA[None, None, k, stage], tCrB[None, None, k, stage], acc)
                tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
            warpgroup.commit_group()
            # The wgmmas of this k-tile stay in flight. The stage of the k-tile before is free.
            warpgroup.wait_group(1)
            if k_tile > 0 and tidx % 32 == 0:
                cute.arch.mbarrier_arrive(empty + (k_tile - 1) % NUM_STAGES)
        warpgroup.wait_group(0)
        if tidx % 32 == 0:
            cute.arch.mbarrier_arrive(empty + (k_tiles - 1) % NUM_STAGES)
        store(acc, tile_m, tile_n, tidx - WARPGROUP, (atom_c, mC, sC, chunk_mma))


@cute.jit
def launch(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor):
    """Compute out = a b^T for a [m, k], b [n, k] and out [m, n]."""
    dtype, order = a.element_type, LayoutEnum.from_tensor(b)
    majors = LayoutEnum.ROW_MAJOR.sm90_mma_major_mode(), order.sm90_mma_major_mode()
    layout_a = hopper.make_smem_layout_a(LayoutEnum.ROW_MAJOR, (BLOCK_M, BLOCK_N, BLOCK_K), dtype, NUM_STAGES)
    layout_b = hopper.make_smem_layout_b(order, (BLOCK_M, BLOCK_N, BLOCK_K), dtype, NUM_STAGES)
    layout_c = hopper.make_smem_layout_epi(dtype, LayoutEnum.ROW_MAJOR, EPI_TILE, CONSUMERS)
    warpgroups = (CONSUMERS, 1, 1)
    tiled_mma = hopper.make_trivial_tiled_mma(dtype, dtype, *majors, cutlass.Float32, warpgroups, (64, BLOCK_N))
    chunk_mma = hopper.make_trivial_tiled_mma(dtype, dtype, *majors, cutlass.Float32, (1, 1, 1), EPI_TILE)
    load_op = cpasync.CopyBulkTensorTileG2SOp()
    one_stage = (None, None, 0)
    tma_a = cpasync.make_tiled_tma_atom(load_op, a, cute.slice_(layout_a, one_stage), (BLOCK_M, BLOCK_K))
    tma_b = cpasync.make_tiled_tma_atom(load_op, b, cute.slice_(layout_b, one_stage), (BLOCK_N, BLOCK_K))
    store_op = cpasync.CopyBulkTensorTileS2GOp()
    tma_c = cpasync.make_tiled_tma_atom(store_op, out, cute.slice_(layout_c, one_stage), EPI_TILE)
    tiles = out.shape[0] // BLOCK_M * (out.shape[1] // BLOCK_N)
    kernel(tiled_mma, chunk_mma, (layout_a, layout_b, layout_c), tma_a, tma_b, tma_c).launch(
        grid=[tiles, 1, 1], block=[(1 + CONSUMERS) * WARPGROUP, 1, 1], min_blocks_per_mp=1
    )


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    out = a.new_empty(a.shape[0], b.shape[1])
    lane.run(launch, a, b.T, out)
    return out
