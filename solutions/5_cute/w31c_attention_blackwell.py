"""Attention on Blackwell: softmax and correction warps around an MMA warp, exponentials on FMA units.

attention_blackwell(q, k, v, causal) takes contiguous bfloat16 tensors that start at multiples of 16 bytes. q has the
shape (batch, heads, tokens, head), and k and v have the shape (batch, kv_heads, tokens, head), where head is 64 or 128.
heads is a multiple of kv_heads, and query head h reads key head h // (heads // kv_heads). If causal is true, query i
attends to keys 0 to i, otherwise to all keys. The function returns softmax(q @ k^T / sqrt(head)) @ v for each head,
with the shape and dtype of q. Scores may be as large as 1000 and as low as -1000. Tensors have fewer than 2**31
elements.

A block has 128 queries of one head and ten warps. The TMA warp loads the queries, and then alternately tiles of 128
keys and tiles of their values into a circular buffer. The MMA warp issues the MMAs that write the scores q @ k^T to
tensor memory. Four softmax warps load the scores, one row per thread, and store the weights, rounded to bfloat16, in
the same columns. There they serve as operand A of the next MMAs, which add weights @ v to an accumulator that stays in
tensor memory. If a row's maximum has grown, the accumulator has to be scaled down. Four correction warps do so, between
two MMAs. At the end they divide the accumulator by the sum of the weights and store it.

There are two score buffers, so that the next tile's MMAs don't have to wait for this tile's softmax. Of a row's 128
exponentials, BY_FMA are computed with a polynomial instead of the exponential unit.

The TMA loads, the copies between tensor memory and registers, and the launch are given. Write `multiply`, `soften`,
`exponentials`, and `correct`. The grader checks the values, the bytes moved, the memory allocated in addition to inputs
and outputs, and every wait. On an sm_100 GPU, it also compares the time with the formula written as PyTorch operators.
The PTX machine runs sm_100a as the manual describes it. Its behavior hasn't been confirmed on hardware yet.

The grader enforces these limits on the largest case (batch=1 heads=4 kv_heads=2 tokens=320 head=128 causal=False
dtype=bfloat16); smaller cases get some slack for partial tiles. Each load or store may touch at most 2 times the
sectors that its bytes require. In total, global memory accesses may move at most 5 times the size of the inputs and
outputs. Any workspace may be at most 0.1 times the size of the inputs and outputs. The multiply-adds must run on tensor
cores.

Bound: by NVIDIA's rates, an SM of a B200 does 8192 operations and 16 exponentials per cycle. So a tile of 128 queries
and 128 keys with heads of 128 takes 1024 cycles for its two GEMMs and 1024 cycles for its exponentials. The kernel
hasn't been timed on a B200. The roles, the polynomial, and the correction follow FlashAttention-4
(Dao-AILab/flash-attention).
"""

import math

import cutlass
import cutlass.utils.blackwell_helpers as blackwell
import torch
from cutlass import cute, pipeline
from cutlass.cute.nvgpu import cpasync, tcgen05
from cutlass.memory import SmemAllocator, TmemAllocator

from kernelpath.lanes import cute as lane

BF16, F32, INT32 = cutlass.BFloat16, cutlass.Float32, cutlass.Int32
# BLOCK_M: queries in a block, one per softmax thread. BLOCK_N: keys in a tile.
WARP, BLOCK_M, BLOCK_N, STAGES = 32, 128, 128, 3
# Columns of tensor memory: two tiles of scores, whose weights replace them, and the output.
SCORES, OUT, COLUMNS = (0, 128), 256, 512
SOFTMAX_WARP, CORRECTION_WARP, MMA_WARP, TMA_WARP, WARPS = 0, 4, 8, 9, 10
# Named barriers of the softmax and correction warps.
SCALE_IS_THERE, SCALE_IS_TAKEN, CORRECTED = 2, 3, 4
# The number of a row's 128 exponentials that FMA units compute.
BY_FMA = 32
# 2^x for -0.5 <= x <= 0.5, with a relative error of at most 7.5e-5; weights are rounded to bfloat16, by up to 2^-8.
POLYNOMIAL = (0.99992807, 0.69326099, 0.24261112, 0.05517167)
# The smallest exponent: below it, the bits of 2^x would overflow into the sign.
LOWEST = -126.0
# x + ROUNDER has the integer nearest to x in its lowest bits.
ROUNDER = 1.5 * 2**23


@cute.kernel
def attend(
    qk: cute.TiledMma, pv: cute.TiledMma, q, k, v, out, group, head: cutlass.Constexpr, causal: cutlass.Constexpr
):
    """Compute 128 rows of a head. q, k, v: copy, TMA tensor, and layout of the stages. out: [tokens, head, heads]."""
    (load_q, q, layout_q), (load_k, k, layout_k), (load_v, v, layout_v) = q, k, v
    warp_id = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    block, _, _ = cute.arch.block_idx()
    tokens = out.shape[0]
    tile, head_index = block % cute.ceil_div(tokens, BLOCK_M), block // cute.ceil_div(tokens, BLOCK_M)
    last = cutlass.min((tile + 1) * BLOCK_M, tokens) if cutlass.const_expr(causal) else tokens
    n_tiles = cute.ceil_div(last, BLOCK_N)

    memory = SmemAllocator()
    full, empty = (memory.allocate_array(cutlass.Int64, STAGES) for _ in range(2))
    scored, weighted = (memory.allocate_array(cutlass.Int64, 2) for _ in range(2))
    queries, added, corrected = (memory.allocate_array(cutlass.Int64, 1) for _ in range(3))
    scales = memory.allocate_tensor(F32, cute.make_layout(BLOCK_M), 16)
    sQ = memory.allocate_tensor(BF16, layout_q.outer, 1024, layout_q.inner)
    sK = memory.allocate_tensor(BF16, layout_k.outer, 1024, layout_k.inner)
    sV = cute.make_tensor(cute.recast_ptr(sK.iterator, layout_v.inner), layout_v.outer)
    if warp_id == TMA_WARP:
        with cute.arch.elect_one():
            for stage in cutlass.range_constexpr(STAGES):
                cute.arch.mbarrier_init(full + stage, 1)
                cute.arch.mbarrier_init(empty + stage, 1)
            for index in cutlass.range_constexpr(2):
                cute.arch.mbarrier_init(scored + index, 1)
                cute.arch.mbarrier_init(weighted + index, 4)  # one arrival per softmax warp
            cute.arch.mbarrier_init(queries, 1)
            cute.arch.mbarrier_init(added, 1)
            cute.arch.mbarrier_init(corrected, 4)
        cute.arch.mbarrier_init_fence()
    tensor_memory = TmemAllocator(
        barrier_for_retrieve=pipeline.NamedBarrier(1, WARPS * WARP), allocator_warp_id=CORRECTION_WARP
    )
    tensor_memory.allocate(COLUMNS)
    tensor_memory.wait_for_alloc()
    address = tensor_memory.retrieve_ptr(F32)
    layout_s = qk.make_fragment_C(qk.partition_shape_C((BLOCK_M, BLOCK_N))).layout
    s = [cute.make_tensor(address + first, layout_s) for first in SCORES]
    acc = cute.make_tensor(address + OUT, pv.make_fragment_C(pv.partition_shape_C((BLOCK_M, head))).layout)
    layout_p = blackwell.make_smem_layout_a(pv, (BLOCK_M, head, BLOCK_N), BF16, 1).outer
    fragment = pv.make_fragment_A(cute.make_tensor(address, layout_p))[None, None, None, 0].layout
    p = [cute.make_tensor(cute.recast_ptr(address + first, dtype=BF16), fragment) for first in SCORES]

    if warp_id == TMA_WARP:
        tiles_q = qk.get_slice(0).partition_A(cute.local_tile(q, (BLOCK_M, head), (tile, 0, head_index)))
        tiles_k = qk.get_slice(0).partition_B(cute.local_tile(k, (BLOCK_N, head), (None, 0, head_index // group)))
        tiles_v = pv.get_slice(0).partition_B(cute.local_tile(v, (head, BLOCK_N), (0, None, head_index // group)))
        copy_q = load_q, *partition(load_q, sQ, tiles_q)
        copy_k = load_k, *partition(load_k, sK, tiles_k)
        copy_v = load_v, *partition(load_v, sV, tiles_v)
        load_tiles(n_tiles, copy_q, copy_k, copy_v, queries, full, empty, head)
    elif warp_id == MMA_WARP:
        operands = qk.make_fragment_A(sQ), qk.make_fragment_B(sK), pv.make_fragment_B(sV)
        barriers = queries, full, empty, scored, weighted, corrected, added
        multiply(n_tiles, qk, pv, operands, s, p, acc, barriers)
    elif warp_id < CORRECTION_WARP:
        limits = tile * BLOCK_M, tokens
        soften(n_tiles, s, scales, scored, weighted, limits, math.log2(math.e) / math.sqrt(head), causal)
    else:
        correct(n_tiles, acc, scales, added, corrected, out[None, None, head_index], tile, head)
        tensor_memory.relinquish_alloc_permit()
        cute.arch.barrier(barrier_id=CORRECTED, number_of_threads=128)
        tensor_memory.free(address)


@cute.jit
def partition(copy: cute.CopyAtom, smem: cute.Tensor, tiles: cute.Tensor):
    """Return tiles [.., tile] and stages [.., stage] as the copy expects them."""
    to_shared, from_tiles = cpasync.tma_partition(
        copy, 0, cute.make_layout(1), cute.group_modes(smem, 0, 3), cute.group_modes(tiles, 0, 3)
    )
    return from_tiles, to_shared


@cute.jit
def load_tiles(n_tiles, copy_q, copy_k, copy_v, queries, full, empty, head: cutlass.Constexpr):
    """Load the queries, then k0, k1, v0, k2, v1, and so on, in the order in which the MMA warp uses them."""
    (load_q, tQgQ, tQsQ), (load_k, tKgK, tKsK), (load_v, tVgV, tVsV) = copy_q, copy_k, copy_v
    with cute.arch.elect_one():
        cute.arch.mbarrier_arrive_and_expect_tx(queries, 2 * BLOCK_M * head)
    cute.copy(load_q, tQgQ, tQsQ[None, 0], tma_bar_ptr=queries)
    count = INT32(0)
    for n_tile in cutlass.range(n_tiles + 1, unroll=1):
        for is_value in cutlass.range_constexpr(2):
            if (n_tile > 0) if cutlass.const_expr(is_value) else (n_tile < n_tiles):
                stage = count % STAGES
                cute.arch.mbarrier_wait(empty + stage, count // STAGES % 2 ^ 1)
                with cute.arch.elect_one():
                    cute.arch.mbarrier_arrive_and_expect_tx(full + stage, 2 * BLOCK_N * head)
                if cutlass.const_expr(is_value):
                    cute.copy(load_v, tVgV[None, n_tile - 1], tVsV[None, stage], tma_bar_ptr=full + stage)
                else:
                    cute.copy(load_k, tKgK[None, n_tile], tKsK[None, stage], tma_bar_ptr=full + stage)
                count += 1


@cute.jit
def multiply(n_tiles, qk, pv, operands, s, p, acc, barriers):
    """Issue the scores of the next tile of keys before the weighted values of this one."""
    (tSrQ, tSrK, tOrV), (queries, full, empty, scored, weighted, corrected, added) = operands, barriers
    cute.arch.mbarrier_wait(queries, 0)
    count = INT32(0)
    for n_tile in cutlass.range(n_tiles + 1, unroll=1):
        if n_tile < n_tiles:
            stage = count % STAGES
            cute.arch.mbarrier_wait(full + stage, count // STAGES % 2)
            for index in cutlass.range_constexpr(2):
                if n_tile % 2 == index:
                    for k in cutlass.range_constexpr(cute.size(tSrQ, mode=[2])):
                        qk.set(tcgen05.Field.ACCUMULATE, k > 0)
                        into = s[index]
                        cute.gemm(qk, into, tSrQ[None, None, k, 0], tSrK[None, None, k, stage], into)
            with cute.arch.elect_one():
                tcgen05.commit(empty + stage)
                tcgen05.commit(scored + n_tile % 2)
            count += 1
        if n_tile > 0:
            stage = count % STAGES
            cute.arch.mbarrier_wait(full + stage, count // STAGES % 2)
            cute.arch.mbarrier_wait(weighted + (n_tile - 1) % 2, (n_tile - 1) // 2 % 2)
            cute.arch.mbarrier_wait(corrected, (n_tile - 1) % 2)
            for index in cutlass.range_constexpr(2):
                if (n_tile - 1) % 2 == index:
                    for k in cutlass.range_constexpr(cute.size(tOrV, mode=[2])):
                        pv.set(tcgen05.Field.ACCUMULATE, n_tile > 1 or k > 0)
                        cute.gemm(pv, acc, p[index][None, None, k], tOrV[None, None, k, stage], acc)
            with cute.arch.elect_one():
                tcgen05.commit(empty + stage)
                tcgen05.commit(added)
            count += 1


@cute.jit
def soften(n_tiles, s, scales, scored, weighted, limits, scale: cutlass.Constexpr, causal: cutlass.Constexpr):
    """Compute weights from scores; thread t has row t. Pass the correction warps the factor that rescales the sums."""
    tidx, _, _ = cute.arch.thread_idx()
    first_row, tokens = limits
    end = first_row + tidx + 1 if cutlass.const_expr(causal) else tokens
    m_i, l_i = -F32.inf, F32(0.0)
    for n_tile in cutlass.range(n_tiles, unroll=1):
        cute.arch.mbarrier_wait(scored + n_tile % 2, n_tile // 2 % 2)
        row = cute.make_rmem_tensor(BLOCK_N, F32)
        for index in cutlass.range_constexpr(2):
            if n_tile % 2 == index:
                load_row(s[index], row, tidx)
        m_new = m_i
        for i in cutlass.range_constexpr(BLOCK_N):
            row[i] = row[i] if n_tile * BLOCK_N + i < end else -F32.inf
            m_new = cute.arch.fmax(m_new, row[i])
        alpha = cute.math.exp2((m_i - m_new) * scale, fastmath=True)
        m_i = m_new
        if n_tile > 0:
            cute.arch.barrier(barrier_id=SCALE_IS_TAKEN, number_of_threads=256)
        scales[tidx] = alpha
        cute.arch.barrier_arrive(barrier_id=SCALE_IS_THERE, number_of_threads=256)
        l_i = l_i * alpha + exponentials(row, m_new * scale, scale)
        for index in cutlass.range_constexpr(2):
            if n_tile % 2 == index:
                store_row(s[index], row, tidx)
        cute.arch.fence_view_async_tmem_store()
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive(weighted + n_tile % 2)
    cute.arch.barrier(barrier_id=SCALE_IS_TAKEN, number_of_threads=256)
    scales[tidx] = l_i
    cute.arch.barrier_arrive(barrier_id=SCALE_IS_THERE, number_of_threads=256)


@cute.jit
def load_row(tile, row, tidx):
    """Load a thread's row of a tile of scores."""
    atom = cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition.x32), F32)
    load = tcgen05.make_tmem_copy(atom, tile[(None, None), 0, 0]).get_slice(tidx)
    source = load.partition_S(tile[(None, None), 0, 0])
    shape = load.partition_D(cute.make_identity_tensor((BLOCK_M, BLOCK_N))).shape
    cute.copy(load, source, cute.make_tensor(row.iterator, cute.make_layout(shape)))
    cute.arch.fence_view_async_tmem_load()


@cute.jit
def store_row(tile, row, tidx):
    """Round a thread's weights, and overwrite the scores with them: two per cell, in half of the columns."""
    half = cute.composition(tile[(None, None), 0, 0], cute.make_layout((BLOCK_M, BLOCK_N // 2)))
    strips = cute.flat_divide(half, (BLOCK_M, 32))
    atom = cute.make_copy_atom(tcgen05.St32x32bOp(tcgen05.Repetition.x32), F32)
    store = tcgen05.make_tmem_copy(atom, strips[None, None, 0, 0]).get_slice(tidx)
    shape = store.partition_S(cute.make_identity_tensor((BLOCK_M, 32))).shape
    targets = store.partition_D(strips)
    for strip in cutlass.range_constexpr(2):
        rounded = cute.make_rmem_tensor(64, BF16)
        rounded.store(cute.make_tensor(row.iterator + 64 * strip, cute.make_layout(64)).load().to(BF16))
        cells = cute.make_tensor(cute.recast_ptr(rounded.iterator, dtype=F32), cute.make_layout(shape))
        cute.copy(store, cells, targets[None, None, None, 0, strip])


@cute.jit
def exponentials(row, m_i, scale: cutlass.Constexpr):
    """Replace scores with 2^(score * scale - m_i), the last BY_FMA of them without the exponential unit; sum them."""
    by_unit = cute.make_tensor(row.iterator, cute.make_layout(BLOCK_N - BY_FMA))
    by_unit.store(cute.math.exp2(by_unit.load() * scale - m_i, fastmath=True))
    for first in cutlass.range_constexpr(BLOCK_N - BY_FMA, BLOCK_N, 8):  # 8 at a time, to save registers
        by_fma = cute.make_tensor(row.iterator + first, cute.make_layout(8))
        for i in cutlass.range_constexpr(8):
            by_fma[i] = cute.arch.fmax(by_fma[i] * scale - m_i, F32(LOWEST))
        x = by_fma.load()
        shifted = x + ROUNDER
        fraction = x - (shifted - ROUNDER)
        power = fraction * POLYNOMIAL[3] + POLYNOMIAL[2]
        power = power * fraction + POLYNOMIAL[1]
        power = power * fraction + POLYNOMIAL[0]
        exponent = shifted.bitcast(INT32) * (1 << 23)  # n << 23, without ROUNDER's bits
        by_fma.store((power.bitcast(INT32) + exponent).bitcast(F32))
    return row.load().reduce(cute.ReductionOp.ADD, F32(0.0), 0)


@cute.jit
def correct(n_tiles, acc, scales, added, corrected, out, tile, head: cutlass.Constexpr):
    """Rescale the sums by the softmax warps' factor, between two MMAs; then divide by the sum of weights, and store."""
    tidx = cute.arch.thread_idx()[0] - CORRECTION_WARP * WARP
    for n_tile in cutlass.range(n_tiles, unroll=1):
        cute.arch.barrier(barrier_id=SCALE_IS_THERE, number_of_threads=256)
        alpha = scales[tidx]
        cute.arch.barrier_arrive(barrier_id=SCALE_IS_TAKEN, number_of_threads=256)
        if n_tile > 0:
            cute.arch.mbarrier_wait(added, (n_tile - 1) % 2)
            if cute.arch.vote_any_sync(alpha < 1.0):
                scale_sums(acc, alpha, tidx, head)
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive(corrected)
    cute.arch.barrier(barrier_id=SCALE_IS_THERE, number_of_threads=256)
    inv_l = cute.arch.rcp_approx(scales[tidx])
    cute.arch.mbarrier_wait(added, (n_tiles - 1) % 2)
    store_sums(acc, inv_l, out, tile * BLOCK_M + tidx, tidx, head)


@cute.jit
def scale_sums(acc, factor, tidx, head: cutlass.Constexpr):
    """Load a thread's row of the sums, multiply it, and write it back."""
    tile = acc[(None, None), 0, 0]
    load = tcgen05.make_tmem_copy(cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition.x32), F32), tile)
    store = tcgen05.make_tmem_copy(cute.make_copy_atom(tcgen05.St32x32bOp(tcgen05.Repetition.x32), F32), tile)
    cells = load.get_slice(tidx).partition_S(tile)
    row = cute.make_rmem_tensor(load.get_slice(tidx).partition_D(cute.make_identity_tensor((BLOCK_M, head))).shape, F32)
    cute.copy(load, cells, row)
    row.store(row.load() * factor)
    cute.copy(store, row, store.get_slice(tidx).partition_D(tile))
    cute.arch.fence_view_async_tmem_store()


@cute.jit
def store_sums(acc, factor, out, row, tidx, head: cutlass.Constexpr):
    """Load a thread's row of the sums, 32 columns at a time, multiply it, round it, and store it."""
    strips = cute.flat_divide(acc[(None, None), 0, 0], (BLOCK_M, 32))
    atom = cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition.x32), F32)
    load = tcgen05.make_tmem_copy(atom, strips[None, None, 0, 0]).get_slice(tidx)
    cells = load.partition_S(strips)
    shape = load.partition_D(cute.make_identity_tensor((BLOCK_M, 32))).shape
    for strip in cutlass.range_constexpr(head // 32):
        loaded = cute.make_rmem_tensor(shape, F32)
        cute.copy(load, cells[None, None, None, 0, strip], loaded)
        rounded = cute.make_rmem_tensor(32, BF16)
        rounded.store((cute.make_tensor(loaded.iterator, cute.make_layout(32)).load() * factor).to(BF16))
        if row < out.shape[0]:
            cute.autovec_copy(rounded, cute.local_tile(out[row, None], (32,), (strip,)))


@cute.jit
def forward(q, k, v, out, head: cutlass.Constexpr, causal: cutlass.Constexpr):
    """q and out are [heads, tokens, head], k and v [kv_heads, tokens, head]."""
    q, k, out = (cute.make_tensor(x.iterator, cute.select(x.layout, mode=[1, 2, 0])) for x in (q, k, out))
    v = cute.make_tensor(v.iterator, cute.select(v.layout, mode=[2, 1, 0]))  # [head, tokens, heads]: B of acc
    K, MN, one = tcgen05.OperandMajorMode.K, tcgen05.OperandMajorMode.MN, tcgen05.CtaGroup.ONE
    qk = blackwell.make_trivial_tiled_mma(BF16, BF16, K, K, F32, one, (BLOCK_M, BLOCK_N))
    pv = blackwell.make_trivial_tiled_mma(BF16, BF16, K, MN, F32, one, (BLOCK_M, head), tcgen05.OperandSource.TMEM)
    tile_qk, tile_pv = (BLOCK_M, BLOCK_N, head), (BLOCK_M, head, BLOCK_N)
    # One stage holds a tile of keys or of values, which have the same bytes.
    layout_q = blackwell.make_smem_layout_a(qk, tile_qk, BF16, 1)
    layout_k = blackwell.make_smem_layout_b(qk, tile_qk, BF16, STAGES)
    layout_v = blackwell.make_smem_layout_b(pv, tile_pv, BF16, STAGES)
    box_q, box_k, box_v = (cute.select(stages, mode=[0, 1, 2]) for stages in (layout_q, layout_k, layout_v))
    load = cpasync.CopyBulkTensorTileG2SOp(one)
    attend(
        qk,
        pv,
        (*cute.nvgpu.make_tiled_tma_atom_A(load, q, box_q, tile_qk, qk), layout_q),
        (*cute.nvgpu.make_tiled_tma_atom_B(load, k, box_k, tile_qk, qk), layout_k),
        (*cute.nvgpu.make_tiled_tma_atom_B(load, v, box_v, tile_pv, pv), layout_v),
        out,
        q.shape[2] // k.shape[2],
        head,
        causal,
    ).launch(grid=[cute.ceil_div(q.shape[0], BLOCK_M) * q.shape[2], 1, 1], block=[WARPS * WARP, 1, 1])


def attention_blackwell(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    out = torch.empty_like(q)
    lane.run(forward, *(x.flatten(0, 1) for x in (q, k, v, out)), q.shape[3], causal)
    return out
