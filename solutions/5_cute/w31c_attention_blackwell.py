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

The grader enforces these limits on the largest case; smaller cases get some slack for partial tiles. Each load or store
may touch at most 2 times the sectors that its bytes require. In total, global memory accesses may move at most 5 times
the size of the inputs and outputs. Any workspace may be at most 0.1 times the size of the inputs and outputs. The
multiply-adds must run on tensor cores.

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
# ROWS: queries in a block, one per softmax thread. KEYS: keys in a tile.
WARP, ROWS, KEYS, STAGES = 32, 128, 128, 3
# Columns of tensor memory: two tiles of scores, whose weights replace them, and the output.
SCORES, OUT, COLUMNS = (0, 128), 256, 512
SOFTMAX_WARP, CORRECTION_WARP, MMA_WARP, TMA_WARP, WARPS = 0, 4, 8, 9, 10
# Named barriers of the softmax and correction warps.
SCALE_IS_THERE, SCALE_IS_TAKEN, CORRECTED = 2, 3, 4
# The number of a row's 128 exponentials that FMA units compute.
BY_FMA = 32
# 2^x for -0.5 <= x <= 0.5, with a relative error of at most 7.5e-5; weights are rounded to 2^-9.
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
    (load_q, q, stages_q), (load_k, k, stages_k), (load_v, v, stages_v) = q, k, v
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    block, _, _ = cute.arch.block_idx()
    tokens = out.shape[0]
    tile, which = block % cute.ceil_div(tokens, ROWS), block // cute.ceil_div(tokens, ROWS)
    last = cutlass.min((tile + 1) * ROWS, tokens) if cutlass.const_expr(causal) else tokens
    steps = cute.ceil_div(last, KEYS)

    memory = SmemAllocator()
    full, empty = (memory.allocate_array(cutlass.Int64, STAGES) for _ in range(2))
    scored, weighted = (memory.allocate_array(cutlass.Int64, 2) for _ in range(2))
    queries, added, corrected = (memory.allocate_array(cutlass.Int64, 1) for _ in range(3))
    scales = memory.allocate_tensor(F32, cute.make_layout(ROWS), 16)
    shared_q = memory.allocate_tensor(BF16, stages_q.outer, 1024, stages_q.inner)
    shared_k = memory.allocate_tensor(BF16, stages_k.outer, 1024, stages_k.inner)
    shared_v = cute.make_tensor(cute.recast_ptr(shared_k.iterator, stages_v.inner), stages_v.outer)
    if warp == TMA_WARP:
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
    of_scores = qk.make_fragment_C(qk.partition_shape_C((ROWS, KEYS))).layout
    scores = [cute.make_tensor(address + first, of_scores) for first in SCORES]
    sums = cute.make_tensor(address + OUT, pv.make_fragment_C(pv.partition_shape_C((ROWS, head))).layout)
    of_weights = blackwell.make_smem_layout_a(pv, (ROWS, head, KEYS), BF16, 1).outer
    fragment = pv.make_fragment_A(cute.make_tensor(address, of_weights))[None, None, None, 0].layout
    weights = [cute.make_tensor(cute.recast_ptr(address + first, dtype=BF16), fragment) for first in SCORES]

    if warp == TMA_WARP:
        tiles_q = qk.get_slice(0).partition_A(cute.local_tile(q, (ROWS, head), (tile, 0, which)))
        tiles_k = qk.get_slice(0).partition_B(cute.local_tile(k, (KEYS, head), (None, 0, which // group)))
        tiles_v = pv.get_slice(0).partition_B(cute.local_tile(v, (head, KEYS), (0, None, which // group)))
        copy_q = load_q, *partition(load_q, shared_q, tiles_q)
        copy_k = load_k, *partition(load_k, shared_k, tiles_k)
        copy_v = load_v, *partition(load_v, shared_v, tiles_v)
        load_tiles(steps, copy_q, copy_k, copy_v, queries, full, empty, head)
    elif warp == MMA_WARP:
        operands = qk.make_fragment_A(shared_q), qk.make_fragment_B(shared_k), pv.make_fragment_B(shared_v)
        barriers = queries, full, empty, scored, weighted, corrected, added
        multiply(steps, qk, pv, operands, scores, weights, sums, barriers)
    elif warp < CORRECTION_WARP:
        limits = tile * ROWS, tokens
        soften(steps, scores, scales, scored, weighted, limits, math.log2(math.e) / math.sqrt(head), causal)
    else:
        correct(steps, sums, scales, added, corrected, out[None, None, which], tile, head)
        tensor_memory.relinquish_alloc_permit()
        cute.arch.barrier(barrier_id=CORRECTED, number_of_threads=128)
        tensor_memory.free(address)


@cute.jit
def partition(copy: cute.CopyAtom, shared: cute.Tensor, tiles: cute.Tensor):
    """Return tiles [.., tile] and stages [.., stage] as the copy takes them."""
    to_shared, from_tiles = cpasync.tma_partition(
        copy, 0, cute.make_layout(1), cute.group_modes(shared, 0, 3), cute.group_modes(tiles, 0, 3)
    )
    return from_tiles, to_shared


@cute.jit
def load_tiles(steps, copy_q, copy_k, copy_v, queries, full, empty, head: cutlass.Constexpr):
    """Load the queries, then k0, k1, v0, k2, v1, and so on, in the order in which the MMA warp uses them."""
    (load_q, from_q, to_q), (load_k, from_k, to_k), (load_v, from_v, to_v) = copy_q, copy_k, copy_v
    with cute.arch.elect_one():
        cute.arch.mbarrier_arrive_and_expect_tx(queries, 2 * ROWS * head)
    cute.copy(load_q, from_q, to_q[None, 0], tma_bar_ptr=queries)
    count = INT32(0)
    for step in cutlass.range(steps + 1, unroll=1):
        for is_value in cutlass.range_constexpr(2):
            if (step > 0) if cutlass.const_expr(is_value) else (step < steps):
                stage = count % STAGES
                cute.arch.mbarrier_wait(empty + stage, count // STAGES % 2 ^ 1)
                with cute.arch.elect_one():
                    cute.arch.mbarrier_arrive_and_expect_tx(full + stage, 2 * KEYS * head)
                if cutlass.const_expr(is_value):
                    cute.copy(load_v, from_v[None, step - 1], to_v[None, stage], tma_bar_ptr=full + stage)
                else:
                    cute.copy(load_k, from_k[None, step], to_k[None, stage], tma_bar_ptr=full + stage)
                count += 1


@cute.jit
def multiply(steps, qk, pv, operands, scores, weights, sums, barriers):
    """Issue the scores of the next tile of keys before the weighted values of this one."""
    (a, keys, values), (queries, full, empty, scored, weighted, corrected, added) = operands, barriers
    cute.arch.mbarrier_wait(queries, 0)
    count = INT32(0)
    for step in cutlass.range(steps + 1, unroll=1):
        if step < steps:
            stage = count % STAGES
            cute.arch.mbarrier_wait(full + stage, count // STAGES % 2)
            for index in cutlass.range_constexpr(2):
                if step % 2 == index:
                    for part in cutlass.range_constexpr(cute.size(a, mode=[2])):
                        qk.set(tcgen05.Field.ACCUMULATE, part > 0)
                        into = scores[index]
                        cute.gemm(qk, into, a[None, None, part, 0], keys[None, None, part, stage], into)
            with cute.arch.elect_one():
                tcgen05.commit(empty + stage)
                tcgen05.commit(scored + step % 2)
            count += 1
        if step > 0:
            stage = count % STAGES
            cute.arch.mbarrier_wait(full + stage, count // STAGES % 2)
            cute.arch.mbarrier_wait(weighted + (step - 1) % 2, (step - 1) // 2 % 2)
            cute.arch.mbarrier_wait(corrected, (step - 1) % 2)
            for index in cutlass.range_constexpr(2):
                if (step - 1) % 2 == index:
                    for part in cutlass.range_constexpr(cute.size(values, mode=[2])):
                        pv.set(tcgen05.Field.ACCUMULATE, step > 1 or part > 0)
                        cute.gemm(pv, sums, weights[index][None, None, part], values[None, None, part, stage], sums)
            with cute.arch.elect_one():
                tcgen05.commit(empty + stage)
                tcgen05.commit(added)
            count += 1


@cute.jit
def soften(steps, scores, scales, scored, weighted, limits, scale: cutlass.Constexpr, causal: cutlass.Constexpr):
    """Compute weights from scores; thread t has row t. Pass the correction warps the factor that rescales the sums."""
    thread, _, _ = cute.arch.thread_idx()
    first_row, tokens = limits
    end = first_row + thread + 1 if cutlass.const_expr(causal) else tokens
    top, total = -F32.inf, F32(0.0)
    for step in cutlass.range(steps, unroll=1):
        cute.arch.mbarrier_wait(scored + step % 2, step // 2 % 2)
        row = cute.make_rmem_tensor(KEYS, F32)
        for index in cutlass.range_constexpr(2):
            if step % 2 == index:
                load_row(scores[index], row, thread)
        largest = top
        for i in cutlass.range_constexpr(KEYS):
            row[i] = row[i] if step * KEYS + i < end else -F32.inf
            largest = cute.arch.fmax(largest, row[i])
        shrink = cute.math.exp2((top - largest) * scale, fastmath=True)
        top = largest
        if step > 0:
            cute.arch.barrier(barrier_id=SCALE_IS_TAKEN, number_of_threads=256)
        scales[thread] = shrink
        cute.arch.barrier_arrive(barrier_id=SCALE_IS_THERE, number_of_threads=256)
        total = total * shrink + exponentials(row, largest * scale, scale)
        for index in cutlass.range_constexpr(2):
            if step % 2 == index:
                store_row(scores[index], row, thread)
        cute.arch.fence_view_async_tmem_store()
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive(weighted + step % 2)
    cute.arch.barrier(barrier_id=SCALE_IS_TAKEN, number_of_threads=256)
    scales[thread] = total
    cute.arch.barrier_arrive(barrier_id=SCALE_IS_THERE, number_of_threads=256)


@cute.jit
def load_row(tile, row, thread):
    """Load a thread's row of a tile of scores."""
    atom = cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition.x32), F32)
    load = tcgen05.make_tmem_copy(atom, tile[(None, None), 0, 0]).get_slice(thread)
    source = load.partition_S(tile[(None, None), 0, 0])
    shape = load.partition_D(cute.make_identity_tensor((ROWS, KEYS))).shape
    cute.copy(load, source, cute.make_tensor(row.iterator, cute.make_layout(shape)))
    cute.arch.fence_view_async_tmem_load()


@cute.jit
def store_row(tile, row, thread):
    """Round a thread's weights, and overwrite the scores with them: two per cell, in half of the columns."""
    half = cute.composition(tile[(None, None), 0, 0], cute.make_layout((ROWS, KEYS // 2)))
    strips = cute.flat_divide(half, (ROWS, 32))
    atom = cute.make_copy_atom(tcgen05.St32x32bOp(tcgen05.Repetition.x32), F32)
    store = tcgen05.make_tmem_copy(atom, strips[None, None, 0, 0]).get_slice(thread)
    shape = store.partition_S(cute.make_identity_tensor((ROWS, 32))).shape
    targets = store.partition_D(strips)
    for strip in cutlass.range_constexpr(2):
        rounded = cute.make_rmem_tensor(64, BF16)
        rounded.store(cute.make_tensor(row.iterator + 64 * strip, cute.make_layout(64)).load().to(BF16))
        cells = cute.make_tensor(cute.recast_ptr(rounded.iterator, dtype=F32), cute.make_layout(shape))
        cute.copy(store, cells, targets[None, None, None, 0, strip])


@cute.jit
def exponentials(row, top, scale: cutlass.Constexpr):
    """Replace the scores by 2^(score * scale - top), the last BY_FMA of them without the exponential unit; sum them."""
    by_unit = cute.make_tensor(row.iterator, cute.make_layout(KEYS - BY_FMA))
    by_unit.store(cute.math.exp2(by_unit.load() * scale - top, fastmath=True))
    for first in cutlass.range_constexpr(KEYS - BY_FMA, KEYS, 8):  # few at a time: their intermediates take registers
        by_fma = cute.make_tensor(row.iterator + first, cute.make_layout(8))
        for i in cutlass.range_constexpr(8):
            by_fma[i] = cute.arch.fmax(by_fma[i] * scale - top, F32(LOWEST))
        x = by_fma.load()
        shifted = x + ROUNDER
        fraction = x - (shifted - ROUNDER)
        power = fraction * POLYNOMIAL[3] + POLYNOMIAL[2]
        power = power * fraction + POLYNOMIAL[1]
        power = power * fraction + POLYNOMIAL[0]
        exponent = shifted.bitcast(INT32) * (1 << 23)  # the integer, moved to the exponent; ROUNDER's bits drop out
        by_fma.store((power.bitcast(INT32) + exponent).bitcast(F32))
    return row.load().reduce(cute.ReductionOp.ADD, F32(0.0), 0)


@cute.jit
def correct(steps, sums, scales, added, corrected, out, tile, head: cutlass.Constexpr):
    """Rescale the sums by the softmax warps' factor, between two MMAs; then divide by the sum of weights, and store."""
    thread = cute.arch.thread_idx()[0] - CORRECTION_WARP * WARP
    for step in cutlass.range(steps, unroll=1):
        cute.arch.barrier(barrier_id=SCALE_IS_THERE, number_of_threads=256)
        shrink = scales[thread]
        cute.arch.barrier_arrive(barrier_id=SCALE_IS_TAKEN, number_of_threads=256)
        if step > 0:
            cute.arch.mbarrier_wait(added, (step - 1) % 2)
            if cute.arch.vote_any_sync(shrink < 1.0):
                scale_sums(sums, shrink, thread, head)
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive(corrected)
    cute.arch.barrier(barrier_id=SCALE_IS_THERE, number_of_threads=256)
    share = cute.arch.rcp_approx(scales[thread])
    cute.arch.mbarrier_wait(added, (steps - 1) % 2)
    store_sums(sums, share, out, tile * ROWS + thread, thread, head)


@cute.jit
def scale_sums(sums, factor, thread, head: cutlass.Constexpr):
    """Load a thread's row of the sums, multiply it, and write it back."""
    tile = sums[(None, None), 0, 0]
    load = tcgen05.make_tmem_copy(cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition.x32), F32), tile)
    store = tcgen05.make_tmem_copy(cute.make_copy_atom(tcgen05.St32x32bOp(tcgen05.Repetition.x32), F32), tile)
    cells = load.get_slice(thread).partition_S(tile)
    row = cute.make_rmem_tensor(load.get_slice(thread).partition_D(cute.make_identity_tensor((ROWS, head))).shape, F32)
    cute.copy(load, cells, row)
    row.store(row.load() * factor)
    cute.copy(store, row, store.get_slice(thread).partition_D(tile))
    cute.arch.fence_view_async_tmem_store()


@cute.jit
def store_sums(sums, factor, out, row, thread, head: cutlass.Constexpr):
    """Load a thread's row of the sums, 32 columns at a time, multiply it, round it, and store it."""
    strips = cute.flat_divide(sums[(None, None), 0, 0], (ROWS, 32))
    atom = cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition.x32), F32)
    load = tcgen05.make_tmem_copy(atom, strips[None, None, 0, 0]).get_slice(thread)
    cells = load.partition_S(strips)
    shape = load.partition_D(cute.make_identity_tensor((ROWS, 32))).shape
    for strip in cutlass.range_constexpr(head // 32):
        part = cute.make_rmem_tensor(shape, F32)
        cute.copy(load, cells[None, None, None, 0, strip], part)
        rounded = cute.make_rmem_tensor(32, BF16)
        rounded.store((cute.make_tensor(part.iterator, cute.make_layout(32)).load() * factor).to(BF16))
        if row < out.shape[0]:
            cute.autovec_copy(rounded, cute.local_tile(out[row, None], (32,), (strip,)))


@cute.jit
def forward(q, k, v, out, head: cutlass.Constexpr, causal: cutlass.Constexpr):
    """q and out are [heads, tokens, head], k and v [kv_heads, tokens, head]."""
    q, k, out = (cute.make_tensor(x.iterator, cute.select(x.layout, mode=[1, 2, 0])) for x in (q, k, out))
    v = cute.make_tensor(v.iterator, cute.select(v.layout, mode=[2, 1, 0]))  # [head, tokens, heads]: B of sums
    along, across, one = tcgen05.OperandMajorMode.K, tcgen05.OperandMajorMode.MN, tcgen05.CtaGroup.ONE
    qk = blackwell.make_trivial_tiled_mma(BF16, BF16, along, along, F32, one, (ROWS, KEYS))
    pv = blackwell.make_trivial_tiled_mma(BF16, BF16, along, across, F32, one, (ROWS, head), tcgen05.OperandSource.TMEM)
    tile_qk, tile_pv = (ROWS, KEYS, head), (ROWS, head, KEYS)
    # One stage holds a tile of keys or of values, which have the same bytes.
    stages_q = blackwell.make_smem_layout_a(qk, tile_qk, BF16, 1)
    stages_k = blackwell.make_smem_layout_b(qk, tile_qk, BF16, STAGES)
    stages_v = blackwell.make_smem_layout_b(pv, tile_pv, BF16, STAGES)
    box_q, box_k, box_v = (cute.select(stages, mode=[0, 1, 2]) for stages in (stages_q, stages_k, stages_v))
    load = cpasync.CopyBulkTensorTileG2SOp(one)
    attend(
        qk,
        pv,
        (*cute.nvgpu.make_tiled_tma_atom_A(load, q, box_q, tile_qk, qk), stages_q),
        (*cute.nvgpu.make_tiled_tma_atom_B(load, k, box_k, tile_qk, qk), stages_k),
        (*cute.nvgpu.make_tiled_tma_atom_B(load, v, box_v, tile_pv, pv), stages_v),
        out,
        q.shape[2] // k.shape[2],
        head,
        causal,
    ).launch(grid=[cute.ceil_div(q.shape[0], ROWS) * q.shape[2], 1, 1], block=[WARPS * WARP, 1, 1])


def attention_blackwell(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    out = torch.empty_like(q)
    lane.run(forward, *(x.flatten(0, 1) for x in (q, k, v, out)), q.shape[3], causal)
    return out
