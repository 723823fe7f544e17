"""Scan: the launch.

scan(x) takes a contiguous int32 vector of 1 to 2**30 elements, not always aligned to 16 bytes (x[1:] is a legal input).
It returns a new int32 vector of the same length with the inclusive prefix sums: out[i] = x[0] + … + x[i]. Every prefix
sum fits in int32.

Write the kernel in w25a_scan.cu, then launch it here. The grader checks the values and the bytes that the kernel moves.
On a GPU, it compares the time with three kernels that read x twice. The limit on bytes allows one read of x and one
write of the result, so blocks have to pass sums to each other while the kernel runs. Loads that a loop repeats until a
value changes are not counted. The grader starts the blocks in ascending and in descending order, and in the largest
case there are more tiles of 4096 elements than blocks that fit on the simulated GPU at once: use atomicAdd, not
blockIdx.x, to give a block its tile.

A block publishes a value with the stub's publish(), with an atomic operation, or with a __threadfence() between the
value and its flag. CUDA C++ does not promise that a volatile access of 8 bytes is indivisible, so the grader reports a
race if blocks pass values by volatile accesses alone, even a sum and its state in one word.

The grader enforces these limits on the largest case (n=300007); smaller cases get some slack for partial tiles. In
total, global memory accesses may move at most 1.25 times the size of the inputs and outputs. Bank conflicts may add at
most 1 wavefront per request.
"""

import torch

from kernelpath.lanes import cuda


def scan(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    # TODO: choose a tile, and the number of tiles
    # TODO: allocate the memory through which blocks communicate, with torch.zeros; it must be 0 in every call
    # TODO: cuda.kernel("w25a_scan.cu", "scan")[tiles, THREADS](x, out, status, next_tile, n)
    raise NotImplementedError("launch the kernel, then return out")
