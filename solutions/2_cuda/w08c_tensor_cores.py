"""GEMM on tensor cores: the launch.

matmul(a, b) takes contiguous matrices of any nonzero size, with shapes (m, k) and (k, n), both bfloat16 or both
float16, and returns a @ b as a new contiguous tensor of shape (m, n) and the same dtype. The accumulators are float32
and are rounded once. a and b are not always aligned to 16 bytes. Tensors may have more than 2**32 elements, so offsets
need 64 bits.

Write the kernel in w08c_tensor_cores.cu, then launch it here. The grader checks the values (products of small integers
exactly), that tensor cores compute them, the bytes moved and their sectors, and bank conflicts. On a GPU, it compares
the time with a kernel whose warps compute one 16 x 16 tile each.

The grader enforces these limits on the largest case (m=256 n=256 k=256 dtype=bfloat16); smaller cases get some slack
for partial tiles. Each load or store may touch at most 2 times the sectors that its bytes require. In total, global
memory accesses may move at most 3.5 times the size of the inputs and outputs. Bank conflicts may add at most 4
wavefronts per request. The multiply-adds must run on tensor cores.

Operations: 2 m n k, 137e9 at 4096^3. Traffic: tiles of 128 x 128 request 4 m n k / 128 bytes, 2.1 GB, most of them from
L2. The tensor cores are the limit, if shared memory keeps up; a warp takes 1.5 wavefronts of ldmatrix per mma.sync. On
Hopper, mma.sync reaches 645 TFLOP/s with operands in registers, whereas cuBLAS reaches 775 with wgmma.

Measured at 4096^3 in bfloat16 on an H200: 431 us, 18.1× faster than a 16 x 16 tile per warp. The expert kernel takes
0.66 of that time: it swizzles tiles instead of padding them, gives a warp 64 x 64 outputs, and loads the next fragments
while it multiplies.

mma.sync and ldmatrix: PTX ISA, "Warp Level Matrix Instructions" (https://docs.nvidia.com/cuda/parallel-thread-execution).
"""

import torch

from kernelpath.lanes import cuda

C_TYPE = {torch.bfloat16: "__nv_bfloat16", torch.float16: "__half"}
TILE = 128  # the kernel's BM and BN
BK = 32
STAGES = 3
THREADS = 256
SHARED_BYTES = 2 * STAGES * (TILE * (BK + 8) + BK * (TILE + 8))  # the kernel's STAGE, with 2 bytes per element


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n)
    if out.numel() == 0:
        return out
    aligned = k % 8 == 0 and n % 8 == 0 and all(tensor.data_ptr() % 16 == 0 for tensor in (a, b))
    word = "uint4" if aligned else "unsigned short"  # every row starts at a multiple of its size
    kernel = cuda.kernel("w08c_tensor_cores.cu", f"matmul<{C_TYPE[a.dtype]}, {word}>")
    grid = ((n + TILE - 1) // TILE, (m + TILE - 1) // TILE)
    kernel[grid, THREADS, SHARED_BYTES](a, b, out, m, n, k)
    return out
