"""Matrix product, naive: the launch.

matmul(a, b) takes contiguous float32 matrices of shapes (m, k) and (k, n), of any size but for m, which is at most
500,000 (a grid has at most 65,535 blocks in y), and returns a @ b as a new contiguous tensor of shape (m, n). The sums
are strict float32: no TF32.
Tensors may have more than 2**32 elements: offsets need 64 bits.

Write the kernel in w04a_matmul_naive.cu, one thread for each element of the result, then launch it here. Graded are
the values, the sectors that each line asks for, and on a GPU the time against the same kernel with rows and columns
exchanged.

Operations: 2 m n k, 137e9 at 4096^3, which an H200 could do in 2 ms. Bytes: 201 MB are compulsory there, 0.05 ms. So
arithmetic should bound it, but it does not. Each multiply-add needs two loads, of which a warp makes 1 + 4 sectors:
160 bytes for 32 multiply-adds. The caches deliver them, and how fast L1 answers is how fast this kernel is.
"""

import torch

from kernelpath.lanes import cuda

THREADS = (32, 8)


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n)
    grid = ((n + 31) // 32, (m + 7) // 8)
    if out.numel():
        cuda.kernel("w04a_matmul_naive.cu", "matmul")[grid, THREADS](a, b, out, m, n, k)
    return out
