"""cp.async: the copies go from global to shared memory without a register.

A GEMM by mma.sync for bfloat16 matrices whose sizes are multiples of the tiles. The names are those of CUTLASS's
examples/python/CuTeDSL/ampere/tensorop_gemm.py: sA is shared memory, gA global memory, tCrA the registers of a thread.
"""

from typing import NamedTuple

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.nvgpu import LoadCacheMode, cpasync, warp
from cutlass.memory import SmemAllocator

from kernelpath.lanes import cute as lane

BLOCK_K = 64  # 128 bytes, once around the banks
GROUP_M = 8  # the tiles that consecutive blocks go down before the next column, while its tiles of b are in L2


class Plan(NamedTuple):
    block_m: int = 128
    block_n: int = 128
    warps: tuple[int, int] = (2, 2)

    @property
    def threads(self) -> int:
        return 32 * self.warps[0] * self.warps[1]


def smem_layout(rows: int, by_k: bool):
    """Return the layout of a tile in shared memory, in lines of 128 bytes along k or along n."""
    shape, stride = ((8, 64), (64, 1)) if by_k else ((64, 8), (1, 64))
    return cute.tile_to_shape(cute.make_layout(shape, stride=stride), (rows, BLOCK_K), (0, 1))


def tiled_copy(dtype, threads: int, by_k: bool):
    """Return a copy in which eight threads take the 16-byte vectors of 64 adjacent elements."""
    atom = cute.make_copy_atom(cpasync.CopyG2SOp(LoadCacheMode.GLOBAL), dtype, num_bits_per_copy=128)
    if by_k:
        order = cute.make_layout((threads // 8, 8), stride=(8, 1))
        return cute.make_tiled_copy_tv(atom, order, cute.make_layout((1, 8)))
    return cute.make_tiled_copy_tv(atom, cute.make_layout((8, threads // 8)), cute.make_layout((8, 1)))


@cute.kernel
def kernel(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor, tiled_mma: cute.TiledMma, plan: cutlass.Constexpr):
    """Compute one tile of out for a [m, k] and b [n, k]."""
    tidx, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    tiles_m, tiles_n = out.shape[0] // plan.block_m, out.shape[1] // plan.block_n
    first_m = block // (GROUP_M * tiles_n) * GROUP_M
    group_m = cutlass.min(tiles_m - first_m, GROUP_M)
    tile_m, tile_n = first_m + block % (GROUP_M * tiles_n) % group_m, block % (GROUP_M * tiles_n) // group_m

    smem = SmemAllocator()
    sA = smem.allocate_tensor(a.element_type, smem_layout(plan.block_m, True), 1024)
    sB = smem.allocate_tensor(b.element_type, smem_layout(plan.block_n, False), 1024)

    copy_a, copy_b = tiled_copy(a.element_type, plan.threads, True), tiled_copy(b.element_type, plan.threads, False)
    gA = cute.local_tile(a, (plan.block_m, BLOCK_K), (tile_m, None))
    gB = cute.local_tile(b, (plan.block_n, BLOCK_K), (tile_n, None))
    tAgA, tAsA = copy_a.get_slice(tidx).partition_S(gA), copy_a.get_slice(tidx).partition_D(sA)
    tBgB, tBsB = copy_b.get_slice(tidx).partition_S(gB), copy_b.get_slice(tidx).partition_D(sB)

    thr_mma = tiled_mma.get_slice(tidx)
    load_a = cute.make_tiled_copy_A(cute.make_copy_atom(warp.LdMatrix8x8x16bOp(False, 4), a.element_type), tiled_mma)
    load_b = cute.make_tiled_copy_B(cute.make_copy_atom(warp.LdMatrix8x8x16bOp(True, 4), b.element_type), tiled_mma)
    tCrA = tiled_mma.make_fragment_A(thr_mma.partition_A(sA))
    tCrB = tiled_mma.make_fragment_B(thr_mma.partition_B(sB))
    tCsA_copy, tCrA_copy = load_a.get_slice(tidx).partition_S(sA), load_a.get_slice(tidx).retile(tCrA)
    tCsB_copy, tCrB_copy = load_b.get_slice(tidx).partition_S(sB), load_b.get_slice(tidx).retile(tCrB)
    tCgC = thr_mma.partition_C(cute.local_tile(out, (plan.block_m, plan.block_n), (tile_m, tile_n)))
    acc = tiled_mma.make_fragment_C(tCgC)
    acc.fill(0.0)

    k_tiles = cute.size(tAgA, mode=[3])
    for k_tile in cutlass.range(k_tiles, unroll=1):
        cute.arch.sync_threads()  # before any thread overwrites what others still read
        cute.copy(copy_a, tAgA[None, None, None, k_tile], tAsA)
        cute.copy(copy_b, tBgB[None, None, None, k_tile], tBsB)
        # A thread waits for its own copies. The barrier after it makes the copies of all threads visible.
        cute.arch.cp_async_commit_group()
        cute.arch.cp_async_wait_group(0)
        cute.arch.sync_threads()
        for k in cutlass.range_constexpr(BLOCK_K // 16):
            cute.copy(load_a, tCsA_copy[None, None, k], tCrA_copy[None, None, k])
            cute.copy(load_b, tCsB_copy[None, None, k], tCrB_copy[None, None, k])
            cute.gemm(tiled_mma, acc, tCrA[None, None, k], tCrB[None, None, k], acc)

    rounded = cute.make_rmem_tensor_like(acc, out.element_type)
    rounded.store(acc.load().to(out.element_type))
    cute.autovec_copy(rounded, tCgC)


@cute.jit
def launch(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor, plan: cutlass.Constexpr):
    warps_m, warps_n = plan.warps
    tiled_mma = cute.make_tiled_mma(
        warp.MmaF16BF16Op(a.element_type, cutlass.Float32, (16, 8, 16)),
        cute.make_layout((warps_m, warps_n, 1)),
        # A warp takes the 16 columns of two mma, so that one ldmatrix of four 8 x 8 matrices loads b for both.
        permutation_mnk=(16 * warps_m, 16 * warps_n, 16),
    )
    blocks = out.shape[0] // plan.block_m * (out.shape[1] // plan.block_n)
    # 1024 bytes more than the tiles need, because the tiles begin at a multiple of 1024 bytes.
    smem_bytes = 2 * BLOCK_K * (plan.block_m + plan.block_n) + 1024
    kernel(a, b, out, tiled_mma, plan).launch(grid=[blocks, 1, 1], block=[plan.threads, 1, 1], smem=smem_bytes)


def matmul(a: torch.Tensor, b: torch.Tensor, **plan) -> torch.Tensor:
    out = a.new_empty(a.shape[0], b.shape[1])
    lane.run(launch, a, b.t(), out, Plan(**plan))
    return out
