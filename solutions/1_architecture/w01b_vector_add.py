"""Vector addition: the launch.

vector_add(x, y) takes two float32 vectors of the same length, which may be any length. They are contiguous, but not
always aligned to 16 bytes (x[1:] is a legal input). It returns x + y as a new tensor. Tensors may have more than 2**32
elements, so offsets need 64 bits.

Write the kernel in w01b_vector_add.cu, then launch it here. The grader checks the values at sizes near the block size,
the bytes that the kernel moves, and, on a GPU, its time compared with torch.add.

The grader enforces these limits on the largest case (n=393216 offset=0); smaller cases get some slack for partial
tiles. Each load or store may touch at most 1.3 times the sectors that its bytes require. In total, global memory
accesses may move at most 1.3 times the size of the inputs and outputs.

Traffic: an addition moves 12 bytes per element, in two reads and a write. An H200 performs 30 trillion additions and
copies 4.28 TB per second, so the bytes take 80 times longer; the measured ceiling is 12 n bytes at copy speed.

16-byte accesses reach this ceiling. By Little's law, 4.28 TB/s at a loaded latency of about 0.8 us require 26 KB in
flight on each of 132 SMs. One float per thread gives at most 16 KB, and one float4 gives 64 KB. At 2^26 elements on an
H200, the times are 245 and 188 us, and a copy of as many bytes takes 193. Two vectors per thread are no faster, and
streaming loads (__ldcs) are 5% slower.
"""

import torch

from kernelpath.lanes import cuda

THREADS = 256


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    aligned = all(tensor.data_ptr() % 16 == 0 for tensor in (x, y, out))
    vector, width = ("float4", 4) if aligned else ("float", 1)
    blocks = (n + THREADS * width - 1) // (THREADS * width)
    cuda.kernel("w01b_vector_add.cu", f"vector_add<{vector}>")[blocks, THREADS](x, y, out, n)
    return out
