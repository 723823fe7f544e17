"""Grouped GEMM for Hopper: a persistent kernel whose tiles end where a group ends.

grouped_gemm(x, w, offsets) takes contiguous tensors that start at multiples of 16 bytes: x of shape (rows, k) and w of
shape (experts, n, k), both bfloat16, and offsets of shape (experts + 1,), int32. Expert e has the rows from offsets[e]
to offsets[e + 1] - 1, and there is at least one row. It returns a new bfloat16 tensor of shape (rows, n):

    out[r] = x[r] @ w[e].T for the expert e of row r

The accumulators are float32 and rounded once. n and k are multiples of 16, there are up to 512 experts, and every
tensor has fewer than 2**31 elements. An expert may have all rows or none. The weight of an expert without rows may
contain NaN. offsets is on the device, and the host must not wait for it.

Start from your own `persistent_gemm` (week 22). The roles, the circular buffer, and its parities are the same, without
clusters. Three things are new. The host does not know the number of tiles, so every block walks through the experts and
takes its share of each. A tile of x may start at any row, not only at a multiple of ROWS: `cute.domain_offset` moves
the origin of x before `cute.local_tile`. And a tile may end in the middle, where the rows of the next expert follow.
TMA checks only the bounds of the whole tensor, so a TMA store would overwrite these rows. In `write`, threads therefore
store from shared memory, and each thread checks its row.

Write `share_of`, `produce`, `consume`, and `write`. The file contains the layouts and the mbarriers. The grader checks
the values, races between blocks, the use of tensor cores, and the requested bytes. The limit on bytes leaves no room
for the weights of experts without rows.

The grader enforces these limits on the largest case (groups=14x0+6x5+70+24 n=528 k=512 dtype=bfloat16); smaller cases
get some slack for partial tiles. In total, global memory accesses may move at most 2.5 times the size of the inputs and
outputs. At least 50% of the global memory traffic must go through TMA. The multiply-adds must run on tensor cores.

Operations: 2 rows n k, 825e9 for 49,152 rows, n = 4096, and k = 2048. Bytes: w once, 2.1 GB for 128 experts, and 0.6 GB
of x and out. On an H200, at 989 TFLOP/s, the operations take at least 0.83 ms, and at 4.5 TB/s the bytes take at least
0.61 ms. The kernel took 1.18 ms there.
"""

import cutlass
import cutlass.cute as cute
import cutlass.utils.hopper_helpers as hopper
import torch
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum

from kernelpath.lanes import cute as lane

# Threads of a warpgroup.
WARPGROUP = 128
# The shape of a tile, and the columns of x and w in a stage. Each of two consumers has 64 rows.
ROWS, COLUMNS, BLOCK_K = 128, 256, 64
STAGES = 4
# The shape of a chunk. A consumer rounds and stores its 64 rows of the tile one chunk at a time.
EPI_TILE = (64, 64)
# Chunks that a consumer has in shared memory: threads may still read one while others write the next.
EPI_STAGES = 2


@cute.jit
def share_of(offsets, expert, before, num_n):
    """Return this block's share of an expert's tiles, and the rows of the expert.

    Tiles are numbered consecutively across experts. A block takes those whose number modulo the blocks is its index.

    before: The number of tiles of the preceding experts. num_n: tiles in a row of tiles.
    Returns the block's first tile, counted from the expert's first one, the number of the expert's tiles, and the
    expert's first row and the end of its rows.
    """
    block, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    start, end = offsets[expert], offsets[expert + 1]
    tiles = cute.ceil_div(end - start, ROWS) * num_n
    return (block + blocks - before % blocks) % blocks, tiles, start, end


@cute.jit
def produce(offsets, num_n, k_tiles, ring, tma_a, a, sA, tma_b, tBgB, tBsB):
    """Fill the circular buffer from one warp.

    num_n: tiles in a row of tiles. k_tiles: tiles of BLOCK_K along k. ring: the mbarriers `full` and `empty`, STAGES of
    each. a, sA: x as tma_a addresses it, and the stages of x. tBgB: the k-tiles [.., column, step, expert] of
    w. tBsB: their stages [.., stage].
    """
    full, empty = ring
    blocks, _, _ = cute.arch.grid_dim()
    count, before = cutlass.Int32(0), cutlass.Int32(0)
    for expert in cutlass.range(offsets.shape[0] - 1, unroll=1):
        first, tiles, start, end = share_of(offsets, expert, before, num_n)
        num_m = cute.ceil_div(end - start, ROWS)
        for tile in cutlass.range(first, tiles, blocks, unroll=1):
            # The tile starts at any row. Rows past the expert's end are loaded as well, and never stored.
            gA = cute.local_tile(cute.domain_offset((start + tile % num_m * ROWS, 0), a), (ROWS, BLOCK_K), (0, None))
            tAsA, tAgA = cpasync.tma_partition(
                tma_a, 0, cute.make_layout(1), cute.group_modes(sA, 0, 2), cute.group_modes(gA, 0, 2)
            )
            for k_tile in cutlass.range(k_tiles, unroll=1):
                stage, lap = count % STAGES, count // STAGES
                cute.arch.mbarrier_wait(empty + stage, lap % 2 ^ 1)
                with cute.arch.elect_one():
                    cute.arch.mbarrier_arrive_and_expect_tx(full + stage, 2 * BLOCK_K * (ROWS + COLUMNS))
                cute.copy(tma_a, tAgA[None, k_tile], tAsA[None, stage], tma_bar_ptr=full + stage)
                cute.copy(tma_b, tBgB[None, tile // num_m, k_tile, expert], tBsB[None, stage], tma_bar_ptr=full + stage)
                count += 1
        before += tiles


@cute.jit
def consume(offsets, num_n, k_tiles, ring, mma, tCrA, tCrB, epilogue):
    """Multiply the stages as they arrive, with one k-tile in flight, and store this consumer's part of each tile.

    tCrA, tCrB: operands of mma in the ring [.., .., part of 16 along k, stage].
    """
    full, empty = ring
    tidx, _, _ = cute.arch.thread_idx()
    blocks, _, _ = cute.arch.grid_dim()
    consumer, signals = cute.arch.make_warp_uniform(tidx // WARPGROUP) - 1, tidx % 32 == 0
    acc = cute.make_rmem_tensor(mma.partition_shape_C((ROWS, COLUMNS)), cutlass.Float32)
    count, before = cutlass.Int32(0), cutlass.Int32(0)
    for expert in cutlass.range(offsets.shape[0] - 1, unroll=1):
        first, tiles, start, end = share_of(offsets, expert, before, num_n)
        num_m = cute.ceil_div(end - start, ROWS)
        for tile in cutlass.range(first, tiles, blocks, unroll=1):
            for k_tile in cutlass.range(k_tiles, unroll=1):
                stage, lap = count % STAGES, count // STAGES
                cute.arch.mbarrier_wait(full + stage, lap % 2)
                warpgroup.fence()
                mma.set(warpgroup.Field.ACCUMULATE, k_tile > 0)
                for k in cutlass.range_constexpr(BLOCK_K // 16):
                    cute.gemm(mma, acc, tCrA[None, None, k, stage], tCrB[None, None, k, stage], acc)
                    mma.set(warpgroup.Field.ACCUMULATE, True)
                warpgroup.commit_group()
                warpgroup.wait_group(1)
                if k_tile > 0 and signals:
                    cute.arch.mbarrier_arrive(empty + (count - 1) % STAGES)
                count += 1
            warpgroup.wait_group(0)
            if signals:
                cute.arch.mbarrier_arrive(empty + (count - 1) % STAGES)
            write(consumer, start + tile % num_m * ROWS + consumer * 64, end, tile // num_m, acc, epilogue)
        before += tiles


@cute.jit
def write(consumer, m_begin, end, tile_n, acc, epilogue):
    """Round a consumer's accumulators, and store the rows before `end` in chunks.

    m_begin: The consumer's first row. tile_n: the tile's column, in tiles. acc: the consumer's accumulators, one chunk
    after the other. epilogue: out, the consumer's EPI_STAGES in shared memory [64, 64, buffer], an mma that has the
    accumulators of one chunk, and a copy of 16 bytes per thread.
    """
    out, buffers, mma, store = epilogue
    tidx, _, _ = cute.arch.thread_idx()
    atom = hopper.sm90_get_smem_store_op(LayoutEnum.ROW_MAJOR, out.element_type, cutlass.Float32)
    to_smem = cute.make_tiled_copy_C(atom, mma).get_slice(tidx % WARPGROUP)
    thr_copy = store.get_slice(tidx % WARPGROUP)
    chunk_acc = cute.make_rmem_tensor(mma.partition_shape_C(EPI_TILE), cutlass.Float32)
    rounded = cute.make_rmem_tensor_like(chunk_acc, out.element_type)
    tCcC = thr_copy.partition_S(cute.make_identity_tensor(EPI_TILE))
    for chunk in cutlass.range_constexpr(COLUMNS // EPI_TILE[1]):
        for i in cutlass.range_constexpr(cute.size(chunk_acc)):
            chunk_acc[i] = acc[chunk * cute.size(chunk_acc) + i]
        rounded.store(chunk_acc.load().to(out.element_type))
        buffer = buffers[None, None, chunk % EPI_STAGES]
        cute.copy(atom, to_smem.retile(rounded), to_smem.partition_D(buffer))
        # After this barrier, the chunk is complete, and every thread has read the chunk that was written before it.
        cute.arch.barrier(barrier_id=1 + consumer, number_of_threads=WARPGROUP)
        n_begin = tile_n * COLUMNS + chunk * EPI_TILE[1]
        tCsC = thr_copy.partition_S(buffer)
        tCgC = thr_copy.partition_D(cute.local_tile(cute.domain_offset((m_begin, n_begin), out), EPI_TILE, (0, 0)))
        for i in cutlass.range_constexpr(cute.size(tCcC, mode=[1])):
            m, n = tCcC[0, i, 0]
            if m_begin + m < end and n_begin + n < out.shape[1]:
                cute.copy(store, tCsC[None, i, 0], tCgC[None, i, 0])


@cute.kernel
def multiply(mma, chunk_mma, store, layouts, a, b, out, offsets):
    """Run one block per SM, with one warpgroup that loads and two that multiply."""
    (of_a, of_b, layout_c), (tma_a, a), (tma_b, b) = layouts, a, b
    tidx, _, _ = cute.arch.thread_idx()
    warp_id = cute.arch.make_warp_uniform(tidx // 32)
    memory = SmemAllocator()
    full = memory.allocate_array(cutlass.Int64, STAGES)
    empty = memory.allocate_array(cutlass.Int64, STAGES)
    sA = memory.allocate_tensor(tma_a.value_type, of_a.outer, 1024, of_a.inner)
    sB = memory.allocate_tensor(tma_b.value_type, of_b.outer, 1024, of_b.inner)
    sC = memory.allocate_tensor(out.element_type, layout_c.outer, 1024, layout_c.inner)
    if warp_id == 0:
        with cute.arch.elect_one():
            for stage in cutlass.range_constexpr(STAGES):
                cute.arch.mbarrier_init(full + stage, 1)
                cute.arch.mbarrier_init(empty + stage, 8)  # one lane of each consumer's warp arrives
        cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    num_n, k_tiles = cute.ceil_div(out.shape[1], COLUMNS), cute.ceil_div(a.shape[1], BLOCK_K)
    if warp_id < 4:
        cute.arch.setmaxregister_decrease(40)
        if warp_id == 0:
            gB = cute.local_tile(b, (COLUMNS, BLOCK_K), (None, None, None))
            tBsB, tBgB = cpasync.tma_partition(
                tma_b, 0, cute.make_layout(1), cute.group_modes(sB, 0, 2), cute.group_modes(gB, 0, 2)
            )
            produce(offsets, num_n, k_tiles, (full, empty), tma_a, a, sA, tma_b, tBgB, tBsB)
    else:
        cute.arch.setmaxregister_increase(232)
        thr_mma = mma.get_slice(tidx - WARPGROUP)
        tCrA, tCrB = mma.make_fragment_A(thr_mma.partition_A(sA)), mma.make_fragment_B(thr_mma.partition_B(sB))
        buffers = cute.local_tile(sC, (*EPI_TILE, EPI_STAGES), (0, 0, warp_id // 4 - 1))
        consume(offsets, num_n, k_tiles, (full, empty), mma, tCrA, tCrB, (out, buffers, chunk_mma, store))


@cute.jit
def gemm(x: cute.Tensor, w: cute.Tensor, offsets: cute.Tensor, out: cute.Tensor, blocks: cutlass.Int32) -> None:
    """out[rows of e] = x[rows of e] w[e]^T for x [rows, k], w [n, k, experts], and out [rows, n]."""
    dtype, k_major = x.element_type, (warpgroup.OperandMajorMode.K, warpgroup.OperandMajorMode.K)
    layout_a = hopper.make_smem_layout_a(LayoutEnum.ROW_MAJOR, (ROWS, COLUMNS, BLOCK_K), dtype, STAGES)
    layout_b = hopper.make_smem_layout_b(LayoutEnum.ROW_MAJOR, (ROWS, COLUMNS, BLOCK_K), dtype, STAGES)
    layout_c = hopper.make_smem_layout_epi(dtype, LayoutEnum.ROW_MAJOR, EPI_TILE, 2 * EPI_STAGES)
    load, acc_dtype = cpasync.CopyBulkTensorTileG2SOp(), cutlass.Float32
    copy_atom = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), dtype, num_bits_per_copy=128)
    multiply(
        hopper.make_trivial_tiled_mma(dtype, dtype, *k_major, acc_dtype, (2, 1, 1), (64, COLUMNS)),
        hopper.make_trivial_tiled_mma(dtype, dtype, *k_major, acc_dtype, (1, 1, 1), EPI_TILE),
        cute.make_tiled_copy_tv(copy_atom, cute.make_layout((16, 8), stride=(8, 1)), cute.make_layout((1, 8))),
        (layout_a, layout_b, layout_c),
        cpasync.make_tiled_tma_atom(load, x, cute.select(layout_a, [0, 1]), (ROWS, BLOCK_K)),
        cpasync.make_tiled_tma_atom(load, w, cute.select(layout_b, [0, 1]), (COLUMNS, BLOCK_K)),
        out,
        offsets,
    ).launch(grid=[blocks, 1, 1], block=[3 * WARPGROUP, 1, 1], min_blocks_per_mp=1)


def grouped_gemm(x: torch.Tensor, w: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    rows, (experts, n, _) = len(x), w.shape
    out = x.new_empty(rows, n)
    num_sms = torch.cuda.get_device_properties(x.device if x.is_cuda else None).multi_processor_count
    # Each expert with rows has at most one tile that is not full. The host does not know how many have rows.
    max_tiles = (rows // ROWS + min(rows, experts)) * -(-n // COLUMNS)
    lane.run(gemm, x, w.permute(1, 2, 0), offsets, out, min(num_sms, max_tiles))
    return out
