"""No roles: one warpgroup of 64 queries copies for itself, with mbarriers by hand, and stores from registers."""

import functools
import math

import cutlass
import cutlass.cute as cute
import cutlass.utils.hopper_helpers as hopper
import torch
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum

from kernelpath.lanes import cute as lane

ROWS, KEYS, STAGES = 64, 64, 2
BF16, F32 = cutlass.BFloat16, cutlass.Float32


class Attention:
    """Attention for heads of one size, causal or not."""

    def __init__(self, head: int, causal: bool):
        self.head, self.causal = head, causal
        self.scale = 1 / math.sqrt(head)

    @cute.jit
    def __call__(self, q: cute.Tensor, k: cute.Tensor, v: cute.Tensor, out: cute.Tensor, lse: cute.Tensor):
        turned = [cute.make_tensor(x.iterator, cute.select(x.layout, mode=[1, 2, 0])) for x in (q, k, v)]
        atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.K_SW128, BF16)
        of_q = cute.tile_to_shape(atom, (ROWS, self.head), order=(0, 1))
        of_kv = cute.tile_to_shape(atom, (KEYS, self.head, STAGES), order=(0, 1, 2))
        transposed = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.MN_SW128, BF16)
        of_v = cute.tile_to_shape(transposed, (self.head, KEYS, STAGES), order=(1, 0, 2))
        load = cpasync.CopyBulkTensorTileG2SOp()
        box = cute.select(of_kv, mode=[0, 1])
        self.attend(
            cpasync.make_tiled_tma_atom(load, turned[0], of_q, (ROWS, self.head)),
            cpasync.make_tiled_tma_atom(load, turned[1], box, (KEYS, self.head)),
            cpasync.make_tiled_tma_atom(load, turned[2], box, (KEYS, self.head)),
            (of_q, of_kv, of_v),
            out,
            lse,
            q.shape[0] // k.shape[0],
        ).launch(grid=[q.shape[0] * cute.ceil_div(q.shape[1], ROWS), 1, 1], block=[128, 1, 1])

    @cute.kernel
    def attend(self, q, k, v, layouts, out, lse, group):
        (copy_q, q), (copy_k, k), (copy_v, v), (of_q, of_kv, of_v) = q, k, v, layouts
        thread, _, _ = cute.arch.thread_idx()
        index, _, _ = cute.arch.block_idx()
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        tokens = out.shape[1]
        blocks = cute.ceil_div(tokens, ROWS)
        query_head, block = index // blocks, index % blocks
        tiles = cute.ceil_div(tokens, KEYS)
        if cutlass.const_expr(self.causal):
            tiles = block + 1

        memory = SmemAllocator()
        full = memory.allocate_array(cutlass.Int64, STAGES)
        shared_q = memory.allocate_tensor(BF16, of_q.outer, 1024, of_q.inner)
        shared_k = memory.allocate_tensor(BF16, of_kv.outer, 1024, of_kv.inner)
        shared_v = memory.allocate_tensor(BF16, of_kv.outer, 1024, of_kv.inner)
        values = cute.make_tensor(cute.recast_ptr(shared_v.iterator, of_v.inner), of_v.outer)
        if thread == 0:
            for stage in cutlass.range_constexpr(STAGES):
                cute.arch.mbarrier_init(full + stage, 1)
        cute.arch.mbarrier_init_fence()
        cute.arch.sync_threads()

        alone = cute.make_layout(1)
        tile_q = cute.local_tile(q, (ROWS, self.head), (block, 0, query_head))
        tiles_k = cute.local_tile(k, (KEYS, self.head), (None, 0, query_head // group))
        tiles_v = cute.local_tile(v, (KEYS, self.head), (None, 0, query_head // group))
        to_q, from_q = cpasync.tma_partition(
            copy_q, 0, alone, cute.group_modes(shared_q, 0, 2), cute.group_modes(tile_q, 0, 2)
        )
        to_k, from_k = cpasync.tma_partition(
            copy_k, 0, alone, cute.group_modes(shared_k, 0, 2), cute.group_modes(tiles_k, 0, 2)
        )
        to_v, from_v = cpasync.tma_partition(
            copy_v, 0, alone, cute.group_modes(shared_v, 0, 2), cute.group_modes(tiles_v, 0, 2)
        )

        rows, columns = LayoutEnum.ROW_MAJOR.sm90_mma_major_mode(), LayoutEnum.COL_MAJOR.sm90_mma_major_mode()
        qk = hopper.make_trivial_tiled_mma(BF16, BF16, rows, rows, F32, (1, 1, 1), (ROWS, KEYS))
        pv = hopper.make_trivial_tiled_mma(
            BF16, BF16, rows, columns, F32, (1, 1, 1), (ROWS, self.head), warpgroup.OperandSource.RMEM
        )
        qk.set(warpgroup.Field.ACCUMULATE, True)
        pv.set(warpgroup.Field.ACCUMULATE, True)
        in_qk, in_pv = qk.get_slice(thread), pv.get_slice(thread)
        a = qk.make_fragment_A(in_qk.partition_A(shared_q))
        b = qk.make_fragment_B(in_qk.partition_B(shared_k))
        weighed = pv.make_fragment_B(in_pv.partition_B(values))
        scores = cute.make_rmem_tensor(qk.partition_shape_C((ROWS, KEYS)), F32)
        shares = cute.make_rmem_tensor(pv.partition_shape_A((ROWS, KEYS)), BF16)
        sums = cute.make_rmem_tensor(pv.partition_shape_C((ROWS, self.head)), F32)
        at = in_qk.partition_C(cute.make_identity_tensor((ROWS, KEYS)))
        of_sums = in_pv.partition_C(cute.make_identity_tensor((ROWS, self.head)))
        top, total = cute.make_rmem_tensor(2, F32), cute.make_rmem_tensor(2, F32)
        sums.fill(0.0)
        total.fill(0.0)
        top.fill(-cutlass.Float32.inf)

        bytes_of_tiles = 2 * cute.size_in_bytes(BF16, cute.select(of_kv, mode=[0, 1]))
        bytes_of_q = cute.size_in_bytes(BF16, of_q)
        if warp == 0:
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(full, bytes_of_tiles + bytes_of_q)
            cute.copy(copy_q, from_q, to_q, tma_bar_ptr=full)
            cute.copy(copy_k, from_k[None, 0], to_k[None, 0], tma_bar_ptr=full)
            cute.copy(copy_v, from_v[None, 0], to_v[None, 0], tma_bar_ptr=full)
        for tile in cutlass.range(tiles, unroll=1):
            stage = tile % STAGES
            if warp == 0 and tile + 1 < tiles:
                after = (tile + 1) % STAGES
                with cute.arch.elect_one():
                    cute.arch.mbarrier_arrive_and_expect_tx(full + after, bytes_of_tiles)
                cute.copy(copy_k, from_k[None, tile + 1], to_k[None, after], tma_bar_ptr=full + after)
                cute.copy(copy_v, from_v[None, tile + 1], to_v[None, after], tma_bar_ptr=full + after)
            cute.arch.mbarrier_wait(full + stage, tile // STAGES % 2)
            scores.fill(0.0)
            warpgroup.fence()
            for step in cutlass.range_constexpr(cute.size(a, mode=[2])):
                cute.gemm(qk, scores, a[None, None, step], b[None, None, step, stage], scores)
            warpgroup.commit_group()
            warpgroup.wait_group(0)
            larger = cute.make_rmem_tensor_like(top)
            larger.store(top.load())
            for i in cutlass.range_constexpr(cute.size(scores)):
                key, row = tile * KEYS + at[i][1], block * ROWS + at[i][0]
                hidden = key >= tokens
                if cutlass.const_expr(self.causal):
                    hidden = key > row
                scores[i] = -cutlass.Float32.inf if hidden else scores[i] * self.scale
                larger[i // 2 % 2] = cute.arch.fmax(larger[i // 2 % 2], scores[i])
            for r in cutlass.range_constexpr(2):
                larger[r] = cute.arch.warp_reduction_max(larger[r], threads_in_group=4)
                total[r] *= cute.math.exp(top[r] - larger[r])
            for i in cutlass.range_constexpr(cute.size(scores)):
                share = cute.math.exp(scores[i] - larger[i // 2 % 2])
                total[i // 2 % 2] += share
                shares[i] = share.to(BF16)
            for i in cutlass.range_constexpr(cute.size(sums)):
                sums[i] *= cute.math.exp(top[i // 2 % 2] - larger[i // 2 % 2])
            top.store(larger.load())
            warpgroup.fence()
            for step in cutlass.range_constexpr(cute.size(shares, mode=[2])):
                cute.gemm(pv, sums, shares[None, None, step], weighed[None, None, step, stage], sums)
            warpgroup.commit_group()
            warpgroup.wait_group(0)
            cute.arch.sync_threads()

        for r in cutlass.range_constexpr(2):
            row = block * ROWS + at[2 * r][0]
            total[r] = cute.arch.warp_reduction_sum(total[r], threads_in_group=4)
            if row < tokens:
                if at[0][1] == 0:
                    lse[query_head, row] = top[r] + cute.math.log(total[r])
                for i in cutlass.range_constexpr(cute.size(sums) // 4):
                    pair = cute.make_rmem_tensor(2, BF16)
                    for c in cutlass.range_constexpr(2):
                        pair[c] = (sums[4 * i + 2 * r + c] / total[r]).to(BF16)
                    place = cute.local_tile(out[query_head, row, None], (2,), (of_sums[4 * i][1] // 2,))
                    cute.autovec_copy(pair, place)


kernel = functools.cache(Attention)


def flash_attention(q, k, v, causal):
    out, lse = torch.empty_like(q), q.new_empty(q.shape[:-1], dtype=torch.float32)
    lane.run(kernel(q.shape[3], causal).__call__, *(x.flatten(0, 1) for x in (q, k, v, out, lse)))
    return out, lse
