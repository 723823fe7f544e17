"""GEMM of float8 matrices with block scales: the tensor cores continue while the last accumulators are promoted.

fp8_gemm(a, b, scale_a, scale_b) takes contiguous float8_e4m3fn matrices a (m, k) and b (n, k) that start at multiples
of 16 bytes. b has a row for each column of the result. n is a multiple of 8, k is a multiple of 16, m is at least 1,
and each tensor has fewer than 2**31 elements. Scales are contiguous float32 matrices for blocks of 128, as in
DeepSeek-V3:

    scale_a (ceil(k / 128), m)               one for each 128 values of a row of a
    scale_b (ceil(n / 128), ceil(k / 128))   one for each 128 x 128 values of b

    out[i, j] = sum over p of a[i, p] * scale_a[p // 128, i] * b[j, p] * scale_b[j // 128, p // 128]

It returns a new bfloat16 tensor (m, n). The accumulators must be float32, rounded once. Hopper's tensor cores keep only
14 bits of an fp8 accumulator, so the result of each block of 128 along k is promoted, that is, multiplied by its scales
and added to a float32 accumulator in registers.

Start from your persistent GEMM. The grader checks the values, the single launch, the use of tensor cores, and the
bytes. The PTX machine checks mbarriers and wgmmas in flight. On a GPU, the grader compares the time with
torch._scaled_mm and the same scales.

The grader enforces these limits on the largest case (m=300 n=264 k=400 dtype=float8_e4m3fn scales=block); smaller cases
get some slack for partial tiles. In total, global memory accesses may move at most 5 times the size of the inputs and
outputs. A call may launch at most 1 kernel. The multiply-adds must run on tensor cores.

Operations: 2 m n k, 1.1e12 at 8192 cubed, 0.56 ms at the 1979 TFLOP/s that NVIDIA states for fp8. Bytes: 268 million,
0.06 ms. Tensor cores multiply a block of 64 x 128 x 128 in 256 cycles. Its promotion takes the CUDA cores at least 64,
so no unit should wait for it. A consumer has two sets of partial accumulators, and promotes one while the other is
multiplied. Nor should a consumer wait for scales. A warp that would otherwise idle loads them, and stores their
products next to each stage in shared memory.

Three things differ from the answer. A consumer issues the wgmmas of four blocks along k in branch-free code, so that
some are always in flight. The factors of a thread's two rows are adjacent, so that one load reads both. For at most 128
rows, tiles have 64 columns, and there are no clusters.

Measured on an H200, in us, compared with the answer and torch._scaled_mm with the same scales, in one run:

                        2048 cubed   4096 cubed   8192 cubed   128 x 8192 x 8192   128 x 7168 x 16,384
    this kernel               23.0        129.6          936                37.9                  56.9
    the answer                23.6        129.2          932                42.3                  71.4
    torch._scaled_mm          21.9        122.3          853                34.8                  55.8

So the promotion at the end of two blocks does not explain why the large GEMMs reach only 92% of the library's speed.
These changes do not help there, either: loop iterations of eight blocks (0.99 of this speed), consumers that take turns
at issuing (0.83), one set of partial accumulators (0.88), and tiles of 256 x 128 with one set (0.77). Loading the
scales by TMA together with the stage gains 0.5% to 2%.
"""

from typing import NamedTuple

import cutlass
import cutlass.cute as cute
import cutlass.utils.hopper_helpers as hopper
import torch
from cutlass.cute.nvgpu import cpasync, warp, warpgroup
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum

from kernelpath.lanes import cute as lane

# Threads of a warpgroup.
WARPGROUP = 128
# Warpgroups that multiply: 64 rows of the tile each.
CONSUMERS = 2
# Rows of a tile, and the depth of a stage, which is the depth of a block of b with one scale.
ROWS, BLOCK_K = 64 * CONSUMERS, 128
# Rows of a tile for each lane of a warp.
ROWS_OF_LANE = ROWS // 32
# The part of a tile that a consumer rounds and stores at once.
EPI_TILE = (64, 64)
# Height of a group of clusters, in clusters. Clusters that run together share a and b in L2.
GROUP_M = 8


class Plan(NamedTuple):
    """The parameters that are known at compile time.

    columns: Columns of a tile, at most as many as a block of b with one scale has. stages: Stages of the circular
    buffer. peers: Blocks of a cluster, whose tiles are vertical neighbors. Each block loads a part of their tile of b.
    blocks: An even number of blocks along k, which a consumer multiplies in unrolled code, with wgmmas always in
    flight.
    """

    bN: int
    stages: int
    peers: int
    blocks: int


SQUARE = Plan(128, stages=5, peers=2, blocks=4)
# For at most ROWS rows: a cluster's second tile would be empty, and tiles of 128 columns would be too few.
FLAT = Plan(64, stages=8, peers=1, blocks=4)


@cute.jit
def tile_of(plan: cutlass.Constexpr, number, rank, tiles_m, tiles_n):
    """Return the row and column of this block's tile for cluster tile `number` of tiles_m x tiles_n."""
    first_m = number // (GROUP_M * tiles_n) * GROUP_M
    within = number % (GROUP_M * tiles_n)
    group_m = cutlass.min(tiles_m - first_m, GROUP_M)
    return (first_m + within % group_m) * plan.peers + rank, within // group_m


@cute.jit
def after(plan: cutlass.Constexpr, stage, phase):
    """Return the stage after this one, and the parity of its lap."""
    stage += 1
    if stage == plan.stages:
        stage = cutlass.Int32(0)
        phase = phase ^ 1
    return stage, phase


@cute.jit
def produce(plan: cutlass.Constexpr, tiles, k_tiles, rank, ring, copy_a, copy_b):
    """Fill the circular buffer from one warp. Each block loads its part of b and multicasts it to the cluster."""
    (first, last, stride, tiles_m, tiles_n), (full, empty) = tiles, ring
    (atom_a, tAgA, tAsA), (atom_b, tBgB, tBsB) = copy_a, copy_b
    mcast_mask = cutlass.Int16((1 << plan.peers) - 1) if cutlass.const_expr(plan.peers > 1) else None
    stage, phase = cutlass.Int32(0), cutlass.Int32(0)
    for number in cutlass.range(first, last, stride, unroll=1):
        tile_m, tile_n = tile_of(plan, number, rank, tiles_m, tiles_n)
        for k_tile in cutlass.range(k_tiles, unroll=1):
            cute.arch.mbarrier_wait(empty + stage, phase ^ 1)
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(full + stage, (ROWS + plan.bN) * BLOCK_K)
            cute.copy(atom_a, tAgA[None, tile_m, k_tile], tAsA[None, stage], tma_bar_ptr=full + stage)
            cute.copy(
                atom_b, tBgB[None, tile_n, k_tile], tBsB[None, stage], tma_bar_ptr=full + stage, mcast_mask=mcast_mask
            )
            stage, phase = after(plan, stage, phase)


@cute.jit
def scales_of(plan: cutlass.Constexpr, k_block_begin, tile_m, tile_n, lane, scales):
    """Load the scales of two blocks along k: for every 32nd row of a, starting at row `lane`, and then for b.

    Rows past the end use the scale of the last row, and steps past k use the scales of the last step. Their results are
    not stored.
    """
    scale_a, scale_b, m, blocks = scales
    loaded = cute.make_rmem_tensor((ROWS_OF_LANE + 1, 2), cutlass.Float32)
    for block in cutlass.range_constexpr(2):
        k_block = cutlass.min(k_block_begin + block, blocks - 1)
        for i in cutlass.range_constexpr(ROWS_OF_LANE):
            loaded[i, block] = scale_a[k_block * m + cutlass.min(tile_m * ROWS + 32 * i + lane, m - 1)]
        loaded[ROWS_OF_LANE, block] = scale_b[tile_n * plan.bN // BLOCK_K * blocks + k_block]
    return loaded


@cute.jit
def prepare(plan: cutlass.Constexpr, tiles, k_tiles, rank, ring, scales, factors):
    """Store the factors of each stage's rows next to it, from one warp that loads scales one iteration ahead.

    Rows r and r + 8 belong to the same threads. Their factors are adjacent, and are loaded at once.
    """
    (first, last, stride, tiles_m, tiles_n), (full, empty) = tiles, ring
    tidx, _, _ = cute.arch.thread_idx()
    lane = tidx % 32
    slot = lane // 16 * 16 + lane % 8 * 2 + lane // 8 % 2
    stage, phase = cutlass.Int32(0), cutlass.Int32(0)
    for number in cutlass.range(first, last, stride, unroll=1):
        tile_m, tile_n = tile_of(plan, number, rank, tiles_m, tiles_n)
        next_scales = scales_of(plan, 0, tile_m, tile_n, lane, scales)
        block_scales = cute.make_rmem_tensor_like(next_scales)
        for k_tile in cutlass.range(0, k_tiles, 2, unroll=1):
            block_scales.store(next_scales.load())
            next_scales.store(scales_of(plan, k_tile + 2, tile_m, tile_n, lane, scales).load())
            for block in cutlass.range_constexpr(2):
                cute.arch.mbarrier_wait(empty + stage, phase ^ 1)
                for i in cutlass.range_constexpr(ROWS_OF_LANE):
                    factors[32 * i + slot, stage] = block_scales[i, block] * block_scales[ROWS_OF_LANE, block]
                cute.arch.sync_warp()
                with cute.arch.elect_one():
                    cute.arch.mbarrier_arrive(full + stage)
                stage, phase = after(plan, stage, phase)


@cute.jit
def promote(acc, part, factors):
    """Add partial accumulators times their factors. Of every four, two are in the first row, and two in the second."""
    for i in cutlass.range_constexpr(cute.size(acc)):
        acc[i] += part[i] * factors[i // 2 % 2]


@cute.jit
def consume(plan: cutlass.Constexpr, tiles, k_tiles, rank, ring, mmas, operands, factors, epilogue):
    """Compute a consumer's part of each tile, plan.blocks along k at a time and the rest 2 at a time, and store it."""
    first, last, stride, tiles_m, tiles_n = tiles
    tidx, _, _ = cute.arch.thread_idx()
    consumer = cute.arch.make_warp_uniform(tidx // WARPGROUP) - 1
    tCcC = mmas[0].get_slice(tidx - WARPGROUP).partition_C(cute.make_identity_tensor((ROWS, plan.bN)))
    acc = cute.make_rmem_tensor(mmas[0].partition_shape_C((ROWS, plan.bN)), cutlass.Float32)
    parts = cute.make_rmem_tensor_like(acc), cute.make_rmem_tensor_like(acc)
    stage, phase = cutlass.Int32(0), cutlass.Int32(0)
    in_turns = k_tiles // plan.blocks * plan.blocks
    for number in cutlass.range(first, last, stride, unroll=1):
        tile_m, tile_n = tile_of(plan, number, rank, tiles_m, tiles_n)
        acc.fill(0.0)
        sums = acc, parts, tCcC[0][0]
        for _ in cutlass.range(0, in_turns, plan.blocks, unroll=1):
            stage, phase = turn(plan, plan.blocks, ring, stage, phase, mmas, operands, sums, factors)
        for _ in cutlass.range(in_turns, k_tiles, 2, unroll=1):
            stage, phase = turn(plan, 2, ring, stage, phase, mmas, operands, sums, factors)
        write(plan, consumer, tile_m, tile_n, acc, epilogue)


def turn(plan, blocks, ring, stage, phase, mmas, operands, sums, factors):
    """Multiply several blocks along k. The wgmmas of the next block are in flight while a block is promoted.

    Two sets of partial accumulators alternate. The code of all blocks is unrolled, because at the back edge of a loop,
    ptxas would copy a set and make the tensor cores wait for the copy.
    """
    (full, empty), (acc, parts, tile_m) = ring, sums
    at = [(stage, phase)]
    for _ in range(blocks):
        at.append(after(plan, *at[-1]))
    issue(at[0], full, mmas, operands, parts[0])
    for block in range(blocks):
        stage = at[block][0]
        if block + 1 < blocks:
            issue(at[block + 1], full, mmas, operands, parts[(block + 1) % 2])
        row_scales = cute.make_rmem_tensor(2, cutlass.Float32)
        pairs = cute.logical_divide(factors[None, stage], cute.make_layout(2))
        cute.autovec_copy(pairs[None, tile_m // 16 * 8 + tile_m % 8], row_scales)
        warpgroup.wait_group(1 if block + 1 < blocks else 0)
        release(plan, empty + stage)
        promote(acc, parts[block % 2], row_scales)
    return at[-1]


def issue(at, full, mmas, operands, part):
    """Issue the wgmmas of the block in a stage as one group, which starts with new accumulators."""
    (stage, phase), (a, b) = at, operands
    cute.arch.mbarrier_wait(full + stage, phase)
    warpgroup.fence()
    for k in range(BLOCK_K // 32):
        cute.gemm(mmas[k > 0], part, a[None, None, k, stage], b[None, None, k, stage], part)
    warpgroup.commit_group()


@cute.jit
def release(plan: cutlass.Constexpr, barrier):
    """Tell each block of the cluster, from a lane of its own, that this warp has read the stage."""
    peer = cute.arch.lane_idx()
    if peer < plan.peers:
        cute.arch.mbarrier_arrive(barrier, peer if cutlass.const_expr(plan.peers > 1) else None)


@cute.jit
def write(plan: cutlass.Constexpr, consumer, tile_m, tile_n, acc, epilogue):
    """Round the accumulators and store them in chunks through swizzled shared memory, while the next tile starts."""
    store, buffer, out, mma = epilogue
    tidx, _, _ = cute.arch.thread_idx()
    is_leader = cute.arch.make_warp_uniform(tidx // 32) % 4 == 0
    atom = cute.make_copy_atom(warp.StMatrix8x8x16bOp(False, 4), store.value_type)
    to_smem = cute.make_tiled_copy_C(atom, mma).get_slice(tidx % WARPGROUP)
    tCsC, tCgC = cpasync.tma_partition(
        store, 0, cute.make_layout(1), cute.group_modes(buffer, 0, 2), cute.group_modes(out, 0, 2)
    )
    chunk_acc = cute.make_rmem_tensor(mma.partition_shape_C(EPI_TILE), cutlass.Float32)
    rounded = cute.make_rmem_tensor_like(chunk_acc, store.value_type)
    chunks = plan.bN // EPI_TILE[1]
    for chunk in cutlass.range_constexpr(chunks):
        for i in cutlass.range_constexpr(cute.size(chunk_acc)):
            chunk_acc[i] = acc[chunk * cute.size(chunk_acc) + i]
        rounded.store(chunk_acc.load().to(store.value_type))
        if is_leader:
            cute.arch.cp_async_bulk_wait_group(0, read=True)
        cute.arch.barrier(barrier_id=1 + consumer, number_of_threads=WARPGROUP)
        cute.copy(atom, to_smem.retile(rounded), to_smem.partition_D(buffer)[None, None, None, 0])
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.barrier(barrier_id=1 + consumer, number_of_threads=WARPGROUP)
        if is_leader:
            cute.copy(store, tCsC[None, 0], tCgC[None, tile_m * CONSUMERS + consumer, tile_n * chunks + chunk])
            cute.arch.cp_async_bulk_commit_group()


@cute.kernel
def multiply(plan: cutlass.Constexpr, mmas, chunk_mma, layouts, a, b, scale_a, scale_b, out):
    """Run one block per SM, with two warps that load and two warpgroups that multiply."""
    (layout_a, layout_b, layout_c), (atom_a, a), (atom_b, b), (store, out) = layouts, a, b, out
    tidx, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    warp_id = cute.arch.make_warp_uniform(tidx // 32)
    rank = cutlass.Int32(0)
    if cutlass.const_expr(plan.peers > 1):
        rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())

    memory = SmemAllocator()
    full = memory.allocate_array(cutlass.Int64, plan.stages)
    empty = memory.allocate_array(cutlass.Int64, plan.stages)
    sA = memory.allocate_tensor(atom_a.value_type, layout_a.outer, 1024, layout_a.inner)
    sB = memory.allocate_tensor(atom_b.value_type, layout_b.outer, 1024, layout_b.inner)
    sC = memory.allocate_tensor(store.value_type, layout_c.outer, 1024, layout_c.inner)
    factors = memory.allocate_tensor(cutlass.Float32, cute.make_layout((ROWS, plan.stages)), 16)
    if warp_id == 0:
        with cute.arch.elect_one():
            for stage in cutlass.range_constexpr(plan.stages):
                cute.arch.mbarrier_init(full + stage, 2)  # the TMA copies, and the factors
                cute.arch.mbarrier_init(empty + stage, 4 * CONSUMERS * plan.peers)
        cute.arch.mbarrier_init_fence()
    cute.arch.cluster_arrive_relaxed()  # all peers must initialize their mbarriers before any block arrives
    cute.arch.cluster_wait()

    tiles_m, tiles_n = cute.ceil_div(out.shape[0], ROWS * plan.peers), cute.ceil_div(out.shape[1], plan.bN)
    tiles = block // plan.peers, tiles_m * tiles_n, blocks // plan.peers, tiles_m, tiles_n
    blocks_of_k = cute.ceil_div(a.shape[1], BLOCK_K)
    k_tiles = (blocks_of_k + 1) // 2 * 2  # TMA fills the part past k with 0
    scales = scale_a, scale_b, out.shape[0], blocks_of_k
    if warp_id < 4:
        cute.arch.setmaxregister_decrease(40)
        if warp_id == 0:
            tAsA, tAgA = cpasync.tma_partition(
                *(atom_a, 0, cute.make_layout(1), cute.group_modes(sA, 0, 2)),
                cute.group_modes(cute.local_tile(a, (ROWS, BLOCK_K), (None, None)), 0, 2),
            )
            tBsB, tBgB = cpasync.tma_partition(
                *(atom_b, rank, cute.make_layout(plan.peers), cute.group_modes(sB, 0, 2)),
                cute.group_modes(cute.local_tile(b, (plan.bN, BLOCK_K), (None, None)), 0, 2),
            )
            produce(plan, tiles, k_tiles, rank, (full, empty), (atom_a, tAgA, tAsA), (atom_b, tBgB, tBsB))
        if warp_id == 1:
            prepare(plan, tiles, k_tiles, rank, (full, empty), scales, factors)
    else:
        cute.arch.setmaxregister_increase(232)
        # The first wgmma of a block overwrites the accumulators, and the others add to them.
        mmas[0].set(warpgroup.Field.ACCUMULATE, False)
        mmas[1].set(warpgroup.Field.ACCUMULATE, True)
        thr_mma = mmas[0].get_slice(tidx - WARPGROUP)
        operands = (
            mmas[0].make_fragment_A(thr_mma.partition_A(sA)),
            mmas[0].make_fragment_B(thr_mma.partition_B(sB)),
        )
        buffer = cute.local_tile(sC, (*EPI_TILE, 1), (0, 0, warp_id // 4 - 1))
        epilogue = store, buffer, cute.local_tile(out, EPI_TILE, (None, None)), chunk_mma
        consume(plan, tiles, k_tiles, rank, (full, empty), mmas, operands, factors, epilogue)
        if warp_id % 4 == 0:
            cute.arch.cp_async_bulk_wait_group(0, read=True)
    cute.arch.cluster_arrive()  # a peer may still arrive at the mbarriers of a block that has finished
    cute.arch.cluster_wait()


@cute.jit
def gemm(
    a: cute.Tensor,
    b: cute.Tensor,
    scale_a: cute.Tensor,
    scale_b: cute.Tensor,
    out: cute.Tensor,
    num_sms: cutlass.Int32,
    plan: cutlass.Constexpr,
) -> None:
    """Launch out = a b^T with scales, for a [m, k], b [n, k] and out [m, n]. Scales are one-dimensional."""
    dtype, row_major = a.element_type, LayoutEnum.ROW_MAJOR
    majors = row_major.sm90_mma_major_mode(), row_major.sm90_mma_major_mode()
    tile = ROWS, plan.bN, BLOCK_K
    layout_a = hopper.make_smem_layout_a(row_major, tile, dtype, plan.stages)
    layout_b = hopper.make_smem_layout_b(row_major, tile, dtype, plan.stages)
    layout_c = hopper.make_smem_layout_epi(out.element_type, row_major, EPI_TILE, CONSUMERS)
    load, store = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileS2GOp()
    to_all = cpasync.CopyBulkTensorTileG2SMulticastOp() if cutlass.const_expr(plan.peers > 1) else load
    tiles_m, tiles_n = cute.ceil_div(out.shape[0], ROWS * plan.peers), cute.ceil_div(out.shape[1], plan.bN)
    columns = 64, plan.bN
    multiply(
        plan,
        [hopper.make_trivial_tiled_mma(dtype, dtype, *majors, cutlass.Float32, (CONSUMERS, 1, 1), columns)] * 2,
        hopper.make_trivial_tiled_mma(dtype, dtype, *majors, cutlass.Float32, (1, 1, 1), EPI_TILE),
        (layout_a, layout_b, layout_c),
        cpasync.make_tiled_tma_atom(load, a, cute.select(layout_a, [0, 1]), (ROWS, BLOCK_K)),
        cpasync.make_tiled_tma_atom(to_all, b, cute.select(layout_b, [0, 1]), tile[1:], num_multicast=plan.peers),
        *(scale_a, scale_b),
        cpasync.make_tiled_tma_atom(store, out, cute.select(layout_c, [0, 1]), EPI_TILE),
    ).launch(
        grid=[cutlass.min(num_sms // plan.peers, tiles_m * tiles_n) * plan.peers, 1, 1],
        block=[WARPGROUP * (1 + CONSUMERS), 1, 1],
        cluster=[plan.peers, 1, 1],
        min_blocks_per_mp=1,
    )


def fp8_gemm(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> torch.Tensor:
    out = torch.empty(len(a), len(b), dtype=torch.bfloat16, device=a.device)
    if out.numel() == 0 or a.shape[1] == 0:
        return out.zero_()
    num_sms = torch.cuda.get_device_properties(a.device if a.is_cuda else None).multi_processor_count
    lane.run(gemm, a, b, scale_a.view(-1), scale_b.view(-1), out, num_sms, FLAT if len(a) <= ROWS else SQUARE)
    return out
