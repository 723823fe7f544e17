"""Write relu(a @ b.T + bias) to out, for sizes that are multiples of 64, in TileLang."""

import tilelang.language as T


def linear_relu(m, n, k):
    @T.prim_func
    def kernel(
        a: T.Tensor((m, k), T.bfloat16),
        b: T.Tensor((n, k), T.bfloat16),
        bias: T.Tensor((n,), T.bfloat16),
        out: T.Tensor((m, n), T.bfloat16),
    ):
        with T.Kernel(m // 64, n // 64, threads=128) as (row, column):
            a_tile = T.alloc_shared((64, 64), T.bfloat16)
            b_tile = T.alloc_shared((64, 64), T.bfloat16)
            acc = T.alloc_fragment((64, 64), T.float32)
            T.clear(acc)
            for step in T.Pipelined(k // 64, num_stages=3):
                T.copy(a[row * 64, step * 64], a_tile)
                T.copy(b[column * 64, step * 64], b_tile)
                T.gemm(a_tile, b_tile, acc, transpose_B=True)
            for i, j in T.Parallel(64, 64):
                acc[i, j] = T.max(acc[i, j] + bias[column * 64 + j], 0)
            T.copy(acc, out[row * 64, column * 64])

    return kernel
