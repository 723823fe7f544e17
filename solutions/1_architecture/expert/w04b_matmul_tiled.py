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
= 128, it reads 4.3 GB at 4096^3, of which 0.2 GB are compulsory. At the copy ceiling, 4.3 GB take 1.0 ms, so the kernel
is compute bound. The measured ceiling is the 51 TFLOP/s that cuBLAS reaches in float32 on an H200, which take 2.7 ms.

These are the rates of the successive kernels at 4096^3 on an H200, in strict float32:

    kernel                                    reads per multiply-add      TFLOP/s
    naive                                     2, from L1                      5.9
    a tile of 32, one output per thread       2, from shared memory           8.9
    a tile of 64, 4 x 4 outputs per thread    0.5                            22.9
    a tile of 128, 8 x 8 outputs per thread   0.25                           43.7
    cuBLAS                                                                   51.1
"""

import torch

from kernelpath.lanes import cuda

THREADS = 256
TILE = 128


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n)
    if out.numel() == 0:
        return out
    aligned = n % 4 == 0 and k % 4 == 0 and all(tensor.data_ptr() % 16 == 0 for tensor in (a, b))
    kernel = cuda.kernel("w04b_matmul_tiled.cu", f"matmul<{'float4' if aligned else 'float'}>")
    grid = ((n + TILE - 1) // TILE, (m + TILE - 1) // TILE)
    kernel[grid, THREADS](a, b, out, m, n, k)
    return out
