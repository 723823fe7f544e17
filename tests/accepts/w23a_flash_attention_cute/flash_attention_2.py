"""The form of FlashAttention-2, as on Ampere: mma.sync and ldmatrix in four warps of 16 queries; no TMA, no wgmma."""

import math

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.nvgpu import warp as instructions
from cutlass.memory import SmemAllocator

from kernelpath.lanes import cute as lane

ROWS, KEYS, THREADS = 64, 64, 128
BF16, F32 = cutlass.BFloat16, cutlass.Float32


@cute.jit
def forward(q, k, v, out, lse, head: cutlass.Constexpr, causal: cutlass.Constexpr):
    op = instructions.MmaF16BF16Op(BF16, F32, (16, 8, 16))
    mma = cute.make_tiled_mma(op, (4, 1, 1), permutation_mnk=(ROWS, 16, 16))
    blocks = cute.ceil_div(q.shape[1], ROWS)
    attend(mma, q, k, v, out, lse, head, causal).launch(grid=[blocks * q.shape[0], 1, 1], block=[THREADS, 1, 1])


@cute.kernel
def attend(mma, q, k, v, out, lse, head: cutlass.Constexpr, causal: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    index, _, _ = cute.arch.block_idx()
    heads, tokens = q.shape[0], q.shape[1]
    at_head, block = index % heads, cute.ceil_div(tokens, ROWS) - 1 - index // heads
    key_head = at_head // (heads // k.shape[0])
    first = block * ROWS
    tiles = block + 1 if cutlass.const_expr(causal) else cute.ceil_div(tokens, KEYS)

    memory = SmemAllocator()
    swizzled = cute.make_composed_layout(cute.make_swizzle(3, 3, 3), 0, cute.make_layout((8, 64), stride=(64, 1)))
    layout = cute.tile_to_shape(swizzled, (ROWS, head), (0, 1))
    shared_q, shared_k, shared_v = (memory.allocate_tensor(BF16, layout, 1024) for _ in range(3))
    turned = cute.composition(shared_v, cute.make_layout((head, KEYS), stride=(KEYS, 1)))

    mine = mma.get_slice(thread)
    a, b = mine.make_fragment_A(mine.partition_A(shared_q)), mine.make_fragment_B(mine.partition_B(shared_k))
    values = mine.make_fragment_B(mine.partition_B(turned))
    scores = cute.make_rmem_tensor(mine.partition_shape_C((ROWS, KEYS)), F32)
    sums = cute.make_rmem_tensor(mine.partition_shape_C((ROWS, head)), F32)
    shares = cute.make_rmem_tensor(mine.partition_shape_A((ROWS, KEYS)), BF16)
    at = mine.partition_C(cute.make_identity_tensor((ROWS, KEYS)))
    of_sums = mine.partition_C(cute.make_identity_tensor((ROWS, head)))
    load = cute.make_copy_atom(instructions.LdMatrix8x8x16bOp(False, 4), BF16)
    load_turned = cute.make_copy_atom(instructions.LdMatrix8x8x16bOp(True, 4), BF16)
    of_a = cute.make_tiled_copy_A(load, mma).get_slice(thread)
    of_b = cute.make_tiled_copy_B(load, mma).get_slice(thread)
    of_v = cute.make_tiled_copy_B(load_turned, mma).get_slice(thread)

    fetch(q[at_head, None, None], shared_q, first, thread)
    cute.arch.sync_threads()
    cute.copy(load, of_a.partition_S(shared_q), of_a.retile(a))
    scale = math.log2(math.e) / math.sqrt(head)
    top, total = cute.make_rmem_tensor(2, F32), cute.make_rmem_tensor(2, F32)
    top.fill(-cutlass.Float32.inf)
    total.fill(0.0)
    sums.fill(0.0)
    for tile in cutlass.range(tiles, unroll=1):
        fetch(k[key_head, None, None], shared_k, tile * KEYS, thread)
        fetch(v[key_head, None, None], shared_v, tile * KEYS, thread)
        cute.arch.sync_threads()
        cute.copy(load, of_b.partition_S(shared_k), of_b.retile(b))
        scores.fill(0.0)
        cute.gemm(mma, scores, a, b, scores)
        for r in cutlass.range_constexpr(2):
            end = first + at[2 * r][0] + 1 if cutlass.const_expr(causal) else tokens
            places = range(2 * r, cute.size(scores), 4)
            largest = top[r]
            for i in cutlass.range_constexpr(cute.size(scores)):
                if cutlass.const_expr(i // 2 % 2 == r):
                    if tile * KEYS + at[i][1] >= end:
                        scores[i] = -cutlass.Float32.inf
                    largest = cute.arch.fmax(largest, scores[i] * scale)
            largest = cute.arch.warp_reduction_max(largest, threads_in_group=4)
            shrink = cute.math.exp2(top[r] - largest, fastmath=True)
            added = total[r] * shrink
            for i in places:
                for c in range(2):
                    share = cute.math.exp2(scores[i + c] * scale - largest, fastmath=True)
                    added += share
                    shares[i + c] = share.to(BF16)
            for i in range(2 * r, cute.size(sums), 4):
                sums[i] *= shrink
                sums[i + 1] *= shrink
            top[r], total[r] = largest, added
        cute.copy(load_turned, of_v.partition_S(turned), of_v.retile(values))
        cute.gemm(mma, sums, shares, values, sums)
        cute.arch.sync_threads()

    for r in cutlass.range_constexpr(2):
        row = first + at[2 * r][0]
        whole = cute.arch.warp_reduction_sum(total[r], threads_in_group=4)
        if row < tokens:
            if at[0][1] == 0:
                lse[at_head, row] = (top[r] + cute.math.log2(whole)) * math.log(2)
            for i in cutlass.range_constexpr(2 * r, cute.size(sums), 4):
                for c in cutlass.range_constexpr(2):
                    out[at_head, row, of_sums[i + c][1]] = (sums[i + c] / whole).to(BF16)


@cute.jit
def fetch(matrix, shared, first, thread):
    """Rows from `first` on to shared memory, 16 bytes at a time; rows past the end are 0."""
    head = cute.size(shared, mode=[1])
    wide = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), BF16, num_bits_per_copy=128)
    for i in cutlass.range(thread, ROWS * head // 8, THREADS, unroll=4):
        row, column = i // (head // 8), i % (head // 8)
        piece = cute.make_rmem_tensor(8, BF16)
        piece.fill(0.0)
        if first + row < matrix.shape[0]:
            cute.copy(wide, cute.local_tile(matrix[first + row, None], (8,), (column,)), piece)
        cute.copy(wide, piece, cute.local_tile(shared[row, None], (8,), (column,)))


def flash_attention(q, k, v, causal):
    out, lse = torch.empty_like(q), q.new_empty(q.shape[:-1], dtype=torch.float32)
    lane.run(forward, *(x.flatten(0, 1) for x in (q, k, v, out, lse)), q.shape[3], causal)
    return out, lse
