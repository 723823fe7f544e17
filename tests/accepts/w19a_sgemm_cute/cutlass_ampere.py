"""As in CUTLASS's example for Ampere: a class, 8 x 16 threads, rows permuted, the first tile irregular."""

import cutlass
import cutlass.cute as cute
import torch

from kernelpath.lanes import cute as lane


class SGemm:
    def __init__(self, bM=64, bN=64, bK=8, num_stages=3, num_threads=128):
        self.bM, self.bN, self.bK = bM, bN, bK
        self.num_stages, self.num_threads = num_stages, num_threads

    @cute.jit
    def __call__(self, mA: cute.Tensor, mB: cute.Tensor, mC: cute.Tensor):
        sA_layout = cute.make_layout(
            (self.bM, self.bK, self.num_stages), stride=(1, self.bM + 4, self.bK * (self.bM + 4))
        )
        sB_layout = cute.make_layout((self.bN, self.bK, self.num_stages))
        copy_one = cute.make_copy_atom(cute.nvgpu.cpasync.CopyG2SOp(), mA.element_type, num_bits_per_copy=32)
        tA = cute.make_layout((self.num_threads // self.bK, self.bK), stride=(self.bK, 1))
        tB = cute.make_layout((self.bN, self.num_threads // self.bN))
        tiled_copy_A = cute.make_tiled_copy_tv(copy_one, tA, cute.make_layout((1, 1)))
        tiled_copy_B = cute.make_tiled_copy_tv(copy_one, tB, cute.make_layout((1, 1)))
        atoms_layout = cute.make_layout((self.num_threads // 16, 16, 1), stride=(16, 1, 0))
        tiled_mma = cute.make_tiled_mma(
            cute.nvgpu.MmaUniversalOp(cutlass.Float32),
            atoms_layout,
            permutation_mnk=(
                cute.make_layout((atoms_layout.shape[0], 4), stride=(4, 1)),
                None,  # neighboring threads store neighboring columns
                None,
            ),
        )
        mB = cute.make_tensor(mB.iterator, cute.make_layout(mB.shape[::-1], stride=(1, mB.stride[0])))
        grid = (*cute.ceil_div(mC.shape, (self.bM, self.bN)), 1)
        self.kernel(mA, mB, mC, sA_layout, sB_layout, tiled_copy_A, tiled_copy_B, tiled_mma).launch(
            grid=grid, block=[self.num_threads, 1, 1]
        )

    @cute.kernel
    def kernel(
        self,
        mA: cute.Tensor,
        mB: cute.Tensor,
        mC: cute.Tensor,
        sA_layout: cute.Layout,
        sB_layout: cute.Layout,
        tiled_copy_A: cute.TiledCopy,
        tiled_copy_B: cute.TiledCopy,
        tiled_mma: cute.TiledMma,
    ):
        tidx, _, _ = cute.arch.thread_idx()
        bidx, bidy, _ = cute.arch.block_idx()
        K = mA.shape[1]
        k_tiles = cute.ceil_div(K, self.bK)
        residue = K - k_tiles * self.bK
        smem = cutlass.utils.SmemAllocator()
        sA = smem.allocate_tensor(mA.element_type, sA_layout, 16)
        sB = smem.allocate_tensor(mB.element_type, sB_layout, 16)
        thr_A, thr_B = tiled_copy_A.get_slice(tidx), tiled_copy_B.get_slice(tidx)
        gA = cute.local_tile(cute.domain_offset((0, residue), mA), (self.bM, self.bK), (bidx, None))
        gB = cute.local_tile(cute.domain_offset((0, residue), mB), (self.bN, self.bK), (bidy, None))
        cA = cute.local_tile(
            cute.domain_offset((0, residue), cute.make_identity_tensor(mA.shape)), (self.bM, self.bK), (bidx, None)
        )
        cB = cute.local_tile(
            cute.domain_offset((0, residue), cute.make_identity_tensor(mB.shape)), (self.bN, self.bK), (bidy, None)
        )
        tAgA, tAsA, tAcA = thr_A.partition_S(gA), thr_A.partition_D(sA), thr_A.partition_S(cA)
        tBgB, tBsB, tBcB = thr_B.partition_S(gB), thr_B.partition_D(sB), thr_B.partition_S(cB)
        pA = cute.make_rmem_tensor(tAcA[(0, None), None, None, 0].shape, cutlass.Boolean)
        pB = cute.make_rmem_tensor(tBcB[(0, None), None, None, 0].shape, cutlass.Boolean)
        for i in cutlass.range_constexpr(cute.size(pA)):
            at = tAcA[(0, None), None, None, 0][i]
            pA[i] = cute.elem_less((at[0], cutlass.Int32(-1)), (mA.shape[0], at[1]))
        for i in cutlass.range_constexpr(cute.size(pB)):
            at = tBcB[(0, None), None, None, 0][i]
            pB[i] = cute.elem_less((at[0], cutlass.Int32(-1)), (mB.shape[0], at[1]))
        cute.copy(tiled_copy_A, tAgA[None, None, None, 0], tAsA[None, None, None, 0], pred=pA)
        cute.copy(tiled_copy_B, tBgB[None, None, None, 0], tBsB[None, None, None, 0], pred=pB)
        cute.arch.cp_async_commit_group()
        for i in cutlass.range_constexpr(cute.size(pA)):
            pA[i] = tAcA[(0, None), None, None, 0][i][0] < mA.shape[0]
        for i in cutlass.range_constexpr(cute.size(pB)):
            pB[i] = tBcB[(0, None), None, None, 0][i][0] < mB.shape[0]
        for t in cutlass.range_constexpr(1, self.num_stages - 1):
            if t < k_tiles:
                cute.copy(tiled_copy_A, tAgA[None, None, None, t], tAsA[None, None, None, t], pred=pA)
                cute.copy(tiled_copy_B, tBgB[None, None, None, t], tBsB[None, None, None, t], pred=pB)
            cute.arch.cp_async_commit_group()

        thr_mma = tiled_mma.get_slice(tidx)
        gC = cute.local_tile(mC, (self.bM, self.bN), (bidx, bidy))
        tCsA, tCsB, tCgC = thr_mma.partition_A(sA), thr_mma.partition_B(sB), thr_mma.partition_C(gC)
        tCrA = tiled_mma.make_fragment_A(tCsA[None, None, None, 0])
        tCrB = tiled_mma.make_fragment_B(tCsB[None, None, None, 0])
        tCrC = tiled_mma.make_fragment_C(tCgC)
        tCrC.fill(0.0)
        read = cutlass.Int32(0)
        for k_tile in range(k_tiles):
            cute.arch.cp_async_wait_group(self.num_stages - 2)
            cute.arch.sync_threads()
            ahead = k_tile + self.num_stages - 1
            write = ahead % self.num_stages
            if ahead < k_tiles:
                cute.copy(tiled_copy_A, tAgA[None, None, None, ahead], tAsA[None, None, None, write], pred=pA)
                cute.copy(tiled_copy_B, tBgB[None, None, None, ahead], tBsB[None, None, None, write], pred=pB)
            cute.arch.cp_async_commit_group()
            cute.autovec_copy(tCsA[None, None, None, read], tCrA)
            cute.autovec_copy(tCsB[None, None, None, read], tCrB)
            for k_block in cutlass.range_constexpr(self.bK):
                cute.gemm(tiled_mma, tCrC, tCrA[None, None, k_block], tCrB[None, None, k_block], tCrC)
            read = (read + 1) % self.num_stages
        cute.arch.cp_async_wait_group(0)
        cC = cute.local_tile(cute.make_identity_tensor(mC.shape), (self.bM, self.bN), (bidx, bidy))
        tCcC = thr_mma.partition_C(cC)
        pC = cute.make_rmem_tensor(tCrC.layout, cutlass.Boolean)
        for i in cutlass.range_constexpr(cute.size(pC)):
            pC[i] = cute.elem_less(tCcC[i], mC.shape)
        store = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), mC.element_type)
        cute.copy(store, tCrC, tCgC, pred=pC)


gemm = SGemm()


def matmul(a, b):
    c = torch.empty(a.shape[0], b.shape[1], device=a.device, dtype=a.dtype)
    lane.run(gemm, a, b, c)
    return c
