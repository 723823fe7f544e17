"""A class in the style of CUTLASS's examples: odd matrices are padded first, and every copy takes 16 bytes."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.nvgpu import cpasync, warp
from cutlass.memory import SmemAllocator

from kernelpath.lanes import cute as lane


class Gemm:
    def __init__(self, bM: int = 64, bN: int = 128, bK: int = 32, stages: int = 4) -> None:
        self.bM, self.bN, self.bK, self.stages = bM, bN, bK, stages
        self.threads = 128

    @cute.jit
    def __call__(self, mA: cute.Tensor, mB: cute.Tensor, mC: cute.Tensor):
        op = warp.MmaF16BF16Op(cutlass.BFloat16, cutlass.Float32, (16, 8, 16))
        tiled_mma = cute.make_tiled_mma(op, cute.make_layout((2, 2, 1)), permutation_mnk=(32, 32, 16))
        # Rows of 64 bytes: two of them go round all banks, and two bits are swizzled.
        swizzle = cute.make_swizzle(2, 4, 3)
        sA = cute.make_composed_layout(swizzle, 0, cute.make_layout((8, self.bK), stride=(self.bK, 1)))
        sA = cute.tile_to_shape(sA, (self.bM, self.bK, self.stages), (0, 1, 2))
        sB = cute.make_composed_layout(cute.make_swizzle(3, 4, 3), 0, cute.make_layout((64, 8), stride=(1, 64)))
        sB = cute.tile_to_shape(sB, (self.bN, self.bK, self.stages), (0, 1, 2))
        atom = cute.make_copy_atom(cpasync.CopyG2SOp(), cutlass.BFloat16, num_bits_per_copy=128)
        copy_A = cute.make_tiled_copy_tv(
            atom, cute.make_layout((self.threads // 4, 4), stride=(4, 1)), cute.make_layout((1, 8))
        )
        copy_B = cute.make_tiled_copy_tv(atom, cute.make_layout((8, self.threads // 8)), cute.make_layout((8, 1)))
        grid = [cute.ceil_div(mC.shape[0], self.bM), cute.ceil_div(mC.shape[1], self.bN), 1]
        self.kernel(mA, mB, mC, sA, sB, copy_A, copy_B, tiled_mma).launch(grid=grid, block=[self.threads, 1, 1])

    @cute.kernel
    def kernel(
        self,
        mA: cute.Tensor,
        mB: cute.Tensor,
        mC: cute.Tensor,
        sA_layout: cute.ComposedLayout,
        sB_layout: cute.ComposedLayout,
        copy_A: cute.TiledCopy,
        copy_B: cute.TiledCopy,
        tiled_mma: cute.TiledMma,
    ):
        tid, _, _ = cute.arch.thread_idx()
        bx, by, _ = cute.arch.block_idx()
        smem = SmemAllocator()
        sA = smem.allocate_tensor(mA.element_type, sA_layout.outer, 1024, sA_layout.inner)
        sB = smem.allocate_tensor(mB.element_type, sB_layout.outer, 1024, sB_layout.inner)
        thr_A, thr_B, thr_mma = copy_A.get_slice(tid), copy_B.get_slice(tid), tiled_mma.get_slice(tid)
        cA, cB = cute.make_identity_tensor(mA.shape), cute.make_identity_tensor(mB.shape)
        tAgA = thr_A.partition_S(cute.local_tile(mA, (self.bM, self.bK), (bx, None)))
        tBgB = thr_B.partition_S(cute.local_tile(mB, (self.bN, self.bK), (by, None)))
        tAcA = thr_A.partition_S(cute.local_tile(cA, (self.bM, self.bK), (bx, None)))
        tBcB = thr_B.partition_S(cute.local_tile(cB, (self.bN, self.bK), (by, None)))
        tAsA, tBsB = thr_A.partition_D(sA), thr_B.partition_D(sB)
        k_tiles = cute.size(tAgA, mode=[3])

        tAsA.fill(0)
        tBsB.fill(0)
        for stage in cutlass.range_constexpr(self.stages - 1):
            self.load(copy_A, tAgA, tAsA, tAcA, mA.shape, stage, stage, k_tiles)
            self.load(copy_B, tBgB, tBsB, tBcB, mB.shape, stage, stage, k_tiles)
            cute.arch.cp_async_commit_group()

        tCrA = tiled_mma.make_fragment_A(thr_mma.partition_A(sA)[None, None, None, 0])
        tCrB = tiled_mma.make_fragment_B(thr_mma.partition_B(sB)[None, None, None, 0])
        s2r_A = cute.make_tiled_copy_A(
            cute.make_copy_atom(warp.LdMatrix8x8x16bOp(False, 4), mA.element_type), tiled_mma
        )
        s2r_B = cute.make_tiled_copy_B(cute.make_copy_atom(warp.LdMatrix8x8x16bOp(True, 4), mB.element_type), tiled_mma)
        tCsA, tCsB = s2r_A.get_slice(tid).partition_S(sA), s2r_B.get_slice(tid).partition_S(sB)
        places = thr_mma.partition_C(cute.local_tile(cute.make_identity_tensor(mC.shape), (self.bM, self.bN), (bx, by)))
        acc = cute.make_rmem_tensor(places.shape, cutlass.Float32)
        acc.fill(0.0)
        for k_tile in cutlass.range(k_tiles, unroll=1):
            cute.arch.cp_async_wait_group(self.stages - 2)
            cute.arch.sync_threads()
            ahead = k_tile + self.stages - 1
            # What lies beyond k has to be zero, where another tile was before.
            if ahead == k_tiles - 1:
                tAsA[None, None, None, ahead % self.stages].fill(0)
                tBsB[None, None, None, ahead % self.stages].fill(0)
            self.load(copy_A, tAgA, tAsA, tAcA, mA.shape, ahead, ahead % self.stages, k_tiles)
            self.load(copy_B, tBgB, tBsB, tBcB, mB.shape, ahead, ahead % self.stages, k_tiles)
            cute.arch.cp_async_commit_group()
            stage = k_tile % self.stages
            cute.copy(s2r_A, tCsA[None, None, None, stage], s2r_A.get_slice(tid).retile(tCrA))
            cute.copy(s2r_B, tCsB[None, None, None, stage], s2r_B.get_slice(tid).retile(tCrB))
            cute.gemm(tiled_mma, acc, tCrA, tCrB, acc)

        tCgC = thr_mma.partition_C(cute.local_tile(mC, (self.bM, self.bN), (bx, by)))
        tCrC = cute.make_rmem_tensor_like(acc, mC.element_type)
        tCrC.store(acc.load().to(mC.element_type))
        for row in cutlass.range_constexpr(2):
            for i in cutlass.range_constexpr(tCrC.shape[1]):
                for j in cutlass.range_constexpr(tCrC.shape[2]):
                    if cute.elem_less(places[(0, row), i, j], mC.shape):
                        cute.autovec_copy(tCrC[(None, row), i, j], tCgC[(None, row), i, j])

    @cute.jit
    def load(self, copy, source, target, places, shape, k_tile, stage, k_tiles):
        """Copy the vectors of a tile that lie inside of the matrix."""
        if k_tile < k_tiles:
            for i in cutlass.range_constexpr(source.shape[1]):
                for j in cutlass.range_constexpr(source.shape[2]):
                    if cute.elem_less(places[0, i, j, k_tile], shape):
                        cute.copy(copy, source[None, i, j, k_tile], target[None, i, j, stage])


@cute.kernel
def resize_kernel(src: cute.Tensor, dst: cute.Tensor):
    row, column, _ = cute.arch.block_idx()
    column = column * 128 + cute.arch.thread_idx()[0]
    if column < dst.shape[1]:
        value = cutlass.BFloat16(0)
        if cute.elem_less((row, column), src.shape):
            value = src[row, column]
        dst[row, column] = value


@cute.jit
def resize(src: cute.Tensor, dst: cute.Tensor):
    grid = [dst.shape[0], cute.ceil_div(dst.shape[1], 128), 1]
    resize_kernel(src, dst).launch(grid=grid, block=[128, 1, 1])


def resized(x: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """The matrix with zeros below and beside it, or without its last columns."""
    if x.shape == (rows, columns):
        return x
    out = x.new_empty(rows, columns)
    lane.run(resize, x, out)
    return out


GEMM = Gemm()


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    wide_k, wide_n = k + -k % 8, n + -n % 8
    c = a.new_empty(m, wide_n)
    lane.run(GEMM.__call__, resized(a, m, wide_k), resized(b, wide_k, wide_n).t(), c)
    return resized(c, m, n)
