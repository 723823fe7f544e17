"""Asynchronous SGEMM: the launch.

matmul(a, b) takes contiguous float32 matrices of any nonzero size, with shapes (m, k) and (k, n), and returns a @ b as
a new contiguous tensor of shape (m, n). The accumulators are strict float32: no TF32 and no tensor cores. a and b are
not always aligned to 16 bytes. Tensors may have more than 2**32 elements, so offsets need 64 bits.

Write the kernel in w08b_sgemm_async.cu, then launch it here. The grader checks the values; that cp.async copies at
least half of the bytes that are written to shared memory, and that no thread reads a copy before waiting for it; and
the requested bytes, sectors, bank conflicts and wavefronts, as in sgemm_registers. On a GPU, it compares the time with
the reference of sgemm_registers.

The grader enforces these limits on the largest case (m=256 n=256 k=256); smaller cases get some slack for partial
tiles. Each load or store may touch at most 1.3 times the sectors that its bytes require. In total, global memory
accesses may move at most 5 times the size of the inputs and outputs. Bank conflicts may add at most 1 wavefront per
request. Shared memory accesses may take at most 1.2 wavefronts per 128 multiply-adds (one cycle of an SM). At least 50%
of the bytes stored to shared memory must come from cp.async.

Operations and traffic are the same as in sgemm_registers, so the kernel is compute-bound. A circular buffer saves time,
because no thread waits for global memory, and registers, because no thread holds the next tiles in them.

Per tile of 16 steps along k, a thread executes 1024 multiply-adds and about 170 other instructions, 4 of them copies of
16 bytes. Copies of 4 bytes could transpose a, but then there would be 10 copies, each with its own address.

Measured at 4096^3 on an H200: 3.23 ms, 0.90 of the speed of sgemm_registers' expert kernel and 0.83 of cuBLAS's.

cp.async: PTX ISA, "Data Movement and Conversion Instructions: Asynchronous copy"
(https://docs.nvidia.com/cuda/parallel-thread-execution/); the order of waits follows CUTLASS's MmaMultistage. The
expert kernel also reads the values of the next step along k into registers, chooses tiles by the shape, and splits k.
"""

import torch

from kernelpath.lanes import cuda

THREADS = 256
TILE = 128  # the kernel's BM and BN


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n)
    if out.numel() == 0:
        return out
    aligned = n % 4 == 0 and k % 4 == 0 and all(tensor.data_ptr() % 16 == 0 for tensor in (a, b))
    kernel = cuda.kernel("w08b_sgemm_async.cu", f"matmul<{'float4' if aligned else 'float'}>")
    grid = ((n + TILE - 1) // TILE, (m + TILE - 1) // TILE)
    kernel[grid, THREADS](a, b, out, m, n, k)
    return out
