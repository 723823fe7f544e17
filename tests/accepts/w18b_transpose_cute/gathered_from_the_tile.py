"""As in CUDA: vectors go to shared memory as they come, by cp.async, and the values of a vector of out are gathered."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.nvgpu import cpasync

from kernelpath.lanes import cute as lane

THREADS, SIZE = 128, 64


@cute.kernel
def kernel(gX: cute.Tensor, gO: cute.Tensor, n_vec: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()
    bx, by, _ = cute.arch.block_idx()
    m, n = gX.shape
    smem = cutlass.utils.SmemAllocator()
    tile = smem.allocate_tensor(gX.element_type, cute.make_layout((SIZE, SIZE), stride=(SIZE, 1)), 16)
    g2s = cute.make_copy_atom(cpasync.CopyG2SOp(), gX.element_type, num_bits_per_copy=128)
    r2g = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), gX.element_type, num_bits_per_copy=128)
    per_row = SIZE // n_vec
    vecs_in = cute.tiled_divide(cute.local_tile(gX, (SIZE, SIZE), (by, bx)), (1, n_vec))
    vecs = cute.tiled_divide(tile, (1, n_vec))
    vecs_out = cute.tiled_divide(cute.local_tile(gO, (SIZE, SIZE), (bx, by)), (1, n_vec))
    for it in cutlass.range_constexpr(SIZE * per_row // THREADS):
        i = it * THREADS + tidx
        r, v = i // per_row, i % per_row
        if by * SIZE + r < m and bx * SIZE + v * n_vec < n:
            cute.copy(g2s, vecs_in[(0, None), r, v], vecs[(0, None), r, v ^ (r // n_vec % per_row)])
    cute.arch.cp_async_commit_group()
    cute.arch.cp_async_wait_group(0)
    cute.arch.barrier()
    for it in cutlass.range_constexpr(SIZE * per_row // THREADS):
        i = it * THREADS + tidx
        c, v = i // 8 % SIZE, i // 8 // SIZE * 8 + i % 8  # 8 lanes of 16 bytes write 128
        values = cute.make_rmem_tensor((n_vec,), gX.element_type)
        for e in cutlass.range_constexpr(n_vec):
            values[e] = tile[v * n_vec + e, (c // n_vec ^ v) * n_vec + c % n_vec]
        if bx * SIZE + c < n and by * SIZE + v * n_vec < m:
            cute.copy(r2g, values, vecs_out[(0, None), c, v])


@cute.kernel
def scalar_kernel(gX: cute.Tensor, gO: cute.Tensor):
    tx, ty, _ = cute.arch.thread_idx()
    bx, by, _ = cute.arch.block_idx()
    m, n = gX.shape
    smem = cutlass.utils.SmemAllocator()
    tile = smem.allocate_tensor(gX.element_type, cute.make_layout((32, 32), stride=(1, 34)), 16)
    for k in cutlass.range_constexpr(4):
        r, c = by * 32 + ty + 8 * k, bx * 32 + tx
        if r < m and c < n:
            tile[ty + 8 * k, tx] = gX[r, c]
    cute.arch.barrier()
    for k in cutlass.range_constexpr(4):
        r, c = by * 32 + tx, bx * 32 + ty + 8 * k
        if r < m and c < n:
            gO[c, r] = tile[tx, ty + 8 * k]


@cute.jit
def vector_transpose(mX: cute.Tensor, mO: cute.Tensor, n_vec: cutlass.Constexpr):
    mX, mO = [
        cute.make_tensor(t.iterator, cute.make_layout(t.shape, stride=(cute.assume(t.stride[0], divby=n_vec), 1)))
        for t in (mX, mO)
    ]
    m, n = mX.shape
    kernel(mX, mO, n_vec).launch(grid=(cute.ceil_div(n, SIZE), cute.ceil_div(m, SIZE), 1), block=(THREADS, 1, 1))


@cute.jit
def scalar_transpose(mX: cute.Tensor, mO: cute.Tensor):
    m, n = mX.shape
    scalar_kernel(mX, mO).launch(grid=(cute.ceil_div(n, 32), cute.ceil_div(m, 32), 1), block=(32, 8, 1))


def transpose(x):
    out = torch.empty(x.shape[1], x.shape[0], dtype=x.dtype, device=x.device)
    n_vec = 16 // x.element_size()
    if x.shape[0] % n_vec == 0 and x.shape[1] % n_vec == 0 and x.data_ptr() % 16 == 0:
        lane.run(vector_transpose, x, out, n_vec)
    else:
        lane.run(scalar_transpose, x, out)
    return out
