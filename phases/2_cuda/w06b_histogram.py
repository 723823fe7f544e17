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
"""

import torch

from kernelpath.lanes import cuda

C_TYPE = {torch.uint8: "unsigned char", torch.int32: "int"}


def histogram(x: torch.Tensor, bins: int) -> torch.Tensor:
    counts = torch.zeros(bins, dtype=torch.int32, device=x.device)
    # TODO: choose a grid, a block, and the bytes of its extern __shared__ array, 0 without one; then launch:
    # TODO: kernel = cuda.kernel("w06b_histogram.cu", f"histogram<{C_TYPE[x.dtype]}>")
    # TODO: kernel[grid, block, bytes](x, counts, x.numel(), bins)
    raise NotImplementedError("launch the kernel, then return counts")
