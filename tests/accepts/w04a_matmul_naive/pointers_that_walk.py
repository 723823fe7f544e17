"""Pointers moved along k instead of indices; fused multiply-adds told by name."""

from kernelpath.lanes import cuda


def matmul(a, b):
    m, k, n = *a.shape, b.shape[-1]
    out = a.new_empty((m, n))
    cuda.kernel("pointers_that_walk.cu", "matmul")[(1 + (n - 1) // 32, 1 + (m - 1) // 8, 1), (32, 8, 1)](
        a, b, out, m, n, k
    )
    return out
