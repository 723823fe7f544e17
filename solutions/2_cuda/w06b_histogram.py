"""Histogram: the launch.

histogram(x, bins) takes a contiguous vector and returns bins int32 counts: how many elements of x are 0, 1, 2, ...
Either x is uint8 and bins is 256, or x is int32 and bins is any number from 1 to 65536. int32 values that are negative,
or equal to bins or larger, are not counted. x has from 1 to 2**30 elements, so that every count fits, and is not always
aligned to 16 bytes. Its values may be uniform, sorted, or all equal, and the counts must be exact in each case.

Write the kernel in w06b_histogram.cu, then launch it here. The grader checks the values, the bytes moved and their
sectors, how many lanes of an atomic in global memory target the same address, and, on a GPU, the time compared with a
kernel that counts in global memory.

The grader enforces these limits on the largest case (n=1200007 bins=256 dtype=uint8 distribution=uniform); smaller
cases get some slack for partial tiles. Each load or store may touch at most 1.3 times the sectors that its bytes
require. In total, global memory accesses may move at most 3.5 times the size of the inputs and outputs. On average, at
most 1.1 lanes of an atomic may target the same address.

Traffic: each element is read once if the bins fit in shared memory, and the counts are small. The limit is reading x,
or the atomics in shared memory. With a counter per lane, each request takes one wavefront for any input.

65,536 counters of 4 bytes exceed an SM's shared memory, so two rows of blocks read all of x.

Measured for 2^28 bytes in 256 bins on an H200: 412 us, 168× faster than a kernel that counts in global memory. The
expert kernel takes 0.19 of that time. It loads 16 bytes at a time, and its counters have 16 bits, so it reads x once
even with 65,536 bins.

Counters per block are called privatized, and several counters per bin are called replicated: Gomez-Luna et al., "An
optimized approach to histogram computation on GPU" (2013), https://doi.org/10.1007/s00138-012-0443-3.
"""

import torch

from kernelpath.lanes import cuda

C_TYPE = {torch.uint8: "unsigned char", torch.int32: "int"}
THREADS = 1024
MAX_BINS_WITH_COPIES = 256  # with 32 counters for each, they take 32 KiB


def histogram(x: torch.Tensor, bins: int) -> torch.Tensor:
    counts = torch.zeros(bins, dtype=torch.int32, device=x.device)
    n = x.numel()
    if n == 0:
        return counts
    gpu = torch.cuda.get_device_properties()
    copies = 32 if bins <= MAX_BINS_WITH_COPIES else 1
    slice_ = min(bins, gpu.shared_memory_per_block_optin // (4 * copies))
    # A block adds all of its counters to the result. It should count many more elements than it has bins. Two blocks of
    # 1024 threads fill an SM.
    blocks = min(2 * gpu.multi_processor_count, ceil_div(n, max(16 * THREADS, 4 * slice_)))
    kernel = cuda.kernel("w06b_histogram.cu", f"histogram<{C_TYPE[x.dtype]}, {copies}>")
    kernel[(blocks, ceil_div(bins, slice_)), THREADS, 4 * copies * slice_](x, counts, n, bins, slice_)
    return counts


def ceil_div(a: int, b: int) -> int:
    return (a + b - 1) // b
