"""Vector addition: the launch.

vector_add(x, y) takes two float32 vectors of the same length: any length, contiguous, but not always aligned to
16 bytes (x[1:] is a legal input). It returns x + y as a new tensor.
Tensors may have more than 2**32 elements: offsets need 64 bits.

Write the kernel in w01b_vector_add.cu, then launch it here. The grader checks the values at sizes around a block, the
bytes that the kernel moves, and on a GPU the time against torch.add.

Traffic: 12 bytes an element, two reads and a write, for one addition. An H200 adds 67 TFLOP/s and copies 4.2 TB/s, so
memory bounds it 200 times over; the speed of light is 12 n bytes at the rate of a copy.

What reaches it: 16-byte accesses, and no more than that. By Little's law 4.3 TB/s at 0.7 to 0.8 us of latency are 23 to
26 KB in flight on each of 132 SMs; the 2048 threads that an SM holds at a time ask for 64 KB with two float4 loads
each. So one vector a thread is enough: two or four are no faster, and streaming loads (__ldcs) are 6 % slower.
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
