"""SGEMM with register tiles: the launch.

matmul(a, b) takes contiguous float32 matrices of any nonzero size, with shapes (m, k) and (k, n), and returns a @ b as
a new contiguous tensor of shape (m, n). The accumulators are strict float32: no TF32 and no tensor cores. a and b are
not always aligned to 16 bytes. Tensors may have more than 2**32 elements, so offsets need 64 bits.

Write the kernel in w08a_sgemm_registers.cu, then launch it here. The grader checks the values; the bytes that the
kernel requests (tiles have to be at least 64 wide); the sectors of its requests, including those that store out; bank
conflicts; and the wavefronts of shared memory, at most 1.2 per cycle of multiply-adds (an SM executes 128 multiply-adds
per cycle). On a GPU, it compares the time with a tile of 32 with one output per thread.

The grader enforces these limits on the largest case (m=256 n=256 k=128); smaller cases get some slack for partial
tiles. Each load or store may touch at most 1.3 times the sectors that its bytes require. In total, global memory
accesses may move at most 3.5 times the size of the inputs and outputs. Bank conflicts may add at most 1 wavefront per
request. Shared memory accesses may take at most 1.2 wavefronts per 128 multiply-adds (one cycle of an SM).
"""

import torch

from kernelpath.lanes import cuda

THREADS = 128
TILE = 128
NARROW, WIDE = (cuda.kernel("w08a_sgemm_registers.cu", f"matmul<{load}>") for load in ("float", "float4"))


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n)
    if out.numel() == 0:
        return out
    aligned = n % 4 == 0 and k % 4 == 0 and all(tensor.data_ptr() % 16 == 0 for tensor in (a, b))
    kernel = WIDE if aligned else NARROW
    blocks = ((n + TILE - 1) // TILE) * ((m + TILE - 1) // TILE)
    kernel[blocks, THREADS](a, b, out, m, n, k)
    return out
