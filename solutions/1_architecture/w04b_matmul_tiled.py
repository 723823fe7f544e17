"""Tiled matmul: the launch.

matmul(a, b) takes contiguous float32 matrices of any nonzero size, with shapes (m, k) and (k, n), and returns a @ b as
a new contiguous tensor of shape (m, n). The accumulators are strict float32: no TF32. a and b are not always aligned to
16 bytes. Tensors may have more than 2**32 elements, so offsets need 64 bits.

Write the kernel in w04b_matmul_tiled.cu, then launch it here. The grader checks the values, the requested bytes (tiles
have to be at least 32 wide), the bank conflicts, and, on a GPU, the time compared with the naive kernel.

The grader enforces these limits on the largest case (m=128 n=128 k=128); smaller cases get some slack for partial
tiles. Each load or store may touch at most 1.3 times the sectors that its bytes require. In total, global memory
accesses may move at most 3.5 times the size of the inputs and outputs. Bank conflicts may add at most 1 wavefront per
request.

Operations: 2 m n k, which is 137e9 at 4096^3. Traffic: with tiles of T x T, the kernel reads 8 m n k / T bytes. With T
= 64, it reads 8.6 GB at 4096^3, which a copy at 4.2 TB/s moves in 2.0 ms. The arithmetic takes 2.7 ms at the 51 TFLOP/s
of cuBLAS on an H200. Neither of them limits the kernel, but shared memory does: with 4 x 4 outputs per thread, a thread
reads 8 words per 16 multiply-adds.

Measured at 4096^3 on an H200: 5.36 ms, 4.3× faster than the naive kernel. The expert kernel takes 0.59 of that time,
because it reads 16 bytes at a time, computes 8 x 8 outputs per thread and loads the next tiles meanwhile.

The idea and the names are from kernel 5 in Simon Boehm, "How to Optimize a CUDA Matmul Kernel for cuBLAS-like
Performance", https://siboehm.com/articles/22/CUDA-MMM.
"""

import torch

from kernelpath.lanes import cuda

TILE = 64  # BM and BN of the kernel
THREADS = 256  # THREADS of the kernel: one thread per 4 x 4 outputs


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n)
    if out.numel() == 0:
        return out
    grid = ((n + TILE - 1) // TILE, (m + TILE - 1) // TILE)
    cuda.kernel("w04b_matmul_tiled.cu", "matmul")[grid, THREADS](a, b, out, m, n, k)
    return out
