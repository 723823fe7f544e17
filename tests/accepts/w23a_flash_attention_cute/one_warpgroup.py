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
        tidx, _, _ = cute.arch.thread_idx()
        index, _, _ = cute.arch.block_idx()
        warp_id = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        tokens = out.shape[1]
        blocks = cute.ceil_div(tokens, ROWS)
        query_head, block = index // blocks, index % blocks
        tiles = cute.ceil_div(tokens, KEYS)
        if cutlass.const_expr(self.causal):
            tiles = block + 1

        memory = SmemAllocator()
        full = memory.allocate_array(cutlass.Int64, STAGES)
        sQ = memory.allocate_tensor(BF16, of_q.outer, 1024, of_q.inner)
        sK = memory.allocate_tensor(BF16, of_kv.outer, 1024, of_kv.inner)
        sV = memory.allocate_tensor(BF16, of_kv.outer, 1024, of_kv.inner)
        tOrV = cute.make_tensor(cute.recast_ptr(sV.iterator, of_v.inner), of_v.outer)
        if tidx == 0:
            for stage in cutlass.range_constexpr(STAGES):
                cute.arch.mbarrier_init(full + stage, 1)
        cute.arch.mbarrier_init_fence()
        cute.arch.sync_threads()

        alone = cute.make_layout(1)
        tile_q = cute.local_tile(q, (ROWS, self.head), (block, 0, query_head))
        tiles_k = cute.local_tile(k, (KEYS, self.head), (None, 0, query_head // group))
        tiles_v = cute.local_tile(v, (KEYS, self.head), (None, 0, query_head // group))
        tQsQ, tQgQ = cpasync.tma_partition(copy_q, 0, alone, cute.group_modes(sQ, 0, 2), cute.group_modes(tile_q, 0, 2))
        tKsK, tKgK = cpasync.tma_partition(
            copy_k, 0, alone, cute.group_modes(sK, 0, 2), cute.group_modes(tiles_k, 0, 2)
        )
        tVsV, tVgV = cpasync.tma_partition(
            copy_v, 0, alone, cute.group_modes(sV, 0, 2), cute.group_modes(tiles_v, 0, 2)
        )

        rows, columns = LayoutEnum.ROW_MAJOR.sm90_mma_major_mode(), LayoutEnum.COL_MAJOR.sm90_mma_major_mode()
        mma_qk = hopper.make_trivial_tiled_mma(BF16, BF16, rows, rows, F32, (1, 1, 1), (ROWS, KEYS))
        mma_pv = hopper.make_trivial_tiled_mma(
            BF16, BF16, rows, columns, F32, (1, 1, 1), (ROWS, self.head), warpgroup.OperandSource.RMEM
        )
        mma_qk.set(warpgroup.Field.ACCUMULATE, True)
        mma_pv.set(warpgroup.Field.ACCUMULATE, True)
        thr_mma_qk, thr_mma_pv = mma_qk.get_slice(tidx), mma_pv.get_slice(tidx)
        tSrQ = mma_qk.make_fragment_A(thr_mma_qk.partition_A(sQ))
        tSrK = mma_qk.make_fragment_B(thr_mma_qk.partition_B(sK))
        weighed = mma_pv.make_fragment_B(thr_mma_pv.partition_B(tOrV))
        s = cute.make_rmem_tensor(mma_qk.partition_shape_C((ROWS, KEYS)), F32)
        shares = cute.make_rmem_tensor(mma_pv.partition_shape_A((ROWS, KEYS)), BF16)
        acc = cute.make_rmem_tensor(mma_pv.partition_shape_C((ROWS, self.head)), F32)
        at = thr_mma_qk.partition_C(cute.make_identity_tensor((ROWS, KEYS)))
        of_sums = thr_mma_pv.partition_C(cute.make_identity_tensor((ROWS, self.head)))
        m_i, l_i = cute.make_rmem_tensor(2, F32), cute.make_rmem_tensor(2, F32)
        acc.fill(0.0)
        l_i.fill(0.0)
        m_i.fill(-cutlass.Float32.inf)

        bytes_of_tiles = 2 * cute.size_in_bytes(BF16, cute.select(of_kv, mode=[0, 1]))
        bytes_of_q = cute.size_in_bytes(BF16, of_q)
        if warp_id == 0:
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(full, bytes_of_tiles + bytes_of_q)
            cute.copy(copy_q, tQgQ, tQsQ, tma_bar_ptr=full)
            cute.copy(copy_k, tKgK[None, 0], tKsK[None, 0], tma_bar_ptr=full)
            cute.copy(copy_v, tVgV[None, 0], tVsV[None, 0], tma_bar_ptr=full)
        for tile in cutlass.range(tiles, unroll=1):
            stage = tile % STAGES
            if warp_id == 0 and tile + 1 < tiles:
                after = (tile + 1) % STAGES
                with cute.arch.elect_one():
                    cute.arch.mbarrier_arrive_and_expect_tx(full + after, bytes_of_tiles)
                cute.copy(copy_k, tKgK[None, tile + 1], tKsK[None, after], tma_bar_ptr=full + after)
                cute.copy(copy_v, tVgV[None, tile + 1], tVsV[None, after], tma_bar_ptr=full + after)
            cute.arch.mbarrier_wait(full + stage, tile // STAGES % 2)
            s.fill(0.0)
            warpgroup.fence()
            for step in cutlass.range_constexpr(cute.size(tSrQ, mode=[2])):
                cute.gemm(mma_qk, s, tSrQ[None, None, step], tSrK[None, None, step, stage], s)
            warpgroup.commit_group()
            warpgroup.wait_group(0)
            larger = cute.make_rmem_tensor_like(m_i)
            larger.store(m_i.load())
            for i in cutlass.range_constexpr(cute.size(s)):
                key, row = tile * KEYS + at[i][1], block * ROWS + at[i][0]
                hidden = key >= tokens
                if cutlass.const_expr(self.causal):
                    hidden = key > row
                s[i] = -cutlass.Float32.inf if hidden else s[i] * self.scale
                larger[i // 2 % 2] = cute.arch.fmax(larger[i // 2 % 2], s[i])
            for r in cutlass.range_constexpr(2):
                larger[r] = cute.arch.warp_reduction_max(larger[r], threads_in_group=4)
                l_i[r] *= cute.math.exp(m_i[r] - larger[r])
            for i in cutlass.range_constexpr(cute.size(s)):
                p = cute.math.exp(s[i] - larger[i // 2 % 2])
                l_i[i // 2 % 2] += p
                shares[i] = p.to(BF16)
            for i in cutlass.range_constexpr(cute.size(acc)):
                acc[i] *= cute.math.exp(m_i[i // 2 % 2] - larger[i // 2 % 2])
            m_i.store(larger.load())
            warpgroup.fence()
            for step in cutlass.range_constexpr(cute.size(shares, mode=[2])):
                cute.gemm(mma_pv, acc, shares[None, None, step], weighed[None, None, step, stage], acc)
            warpgroup.commit_group()
            warpgroup.wait_group(0)
            cute.arch.sync_threads()

        for r in cutlass.range_constexpr(2):
            row = block * ROWS + at[2 * r][0]
            l_i[r] = cute.arch.warp_reduction_sum(l_i[r], threads_in_group=4)
            if row < tokens:
                if at[0][1] == 0:
                    lse[query_head, row] = m_i[r] + cute.math.log(l_i[r])
                for i in cutlass.range_constexpr(cute.size(acc) // 4):
                    pair = cute.make_rmem_tensor(2, BF16)
                    for c in cutlass.range_constexpr(2):
                        pair[c] = (acc[4 * i + 2 * r + c] / l_i[r]).to(BF16)
                    place = cute.local_tile(out[query_head, row, None], (2,), (of_sums[4 * i][1] // 2,))
                    cute.autovec_copy(pair, place)


kernel = functools.cache(Attention)


def flash_attention(q, k, v, causal):
    out, lse = torch.empty_like(q), q.new_empty(q.shape[:-1], dtype=torch.float32)
    lane.run(kernel(q.shape[3], causal).__call__, *(x.flatten(0, 1) for x in (q, k, v, out, lse)))
    return out, lse
