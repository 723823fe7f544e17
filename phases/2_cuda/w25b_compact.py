"""Compact: the launch.

compact(x, out, count) takes a contiguous float32 vector of 1 to 2**30 elements, an output of the same length, and a
count of one int32. These tensors are not always aligned to 16 bytes. The function writes the elements of x that are
greater than 0 to the beginning of out, in their order in x, and writes their number to count. It returns nothing, and
the rest of out keeps its values. NaN and zeros of both signs are not greater than 0; denormals and infinity are. The
elements are copied bit for bit.

Write the kernel in w25b_compact.cu, then launch it here. The grader checks out, count, and the bytes that the kernel
moves. On a GPU, it compares the time with three kernels that read x twice. The limit on bytes allows one read of x. The
grader starts the blocks in different orders, and the simulated GPU holds fewer blocks at once than the largest case has
tiles of 4096 elements.

The grader enforces this limit on the largest case (n=300007 share=0.5 order=mixed); smaller cases get some slack for
partial tiles. In total, global memory accesses may move at most 1.4 times the size of the inputs and outputs.
"""

import torch

from kernelpath.lanes import cuda


def compact(x: torch.Tensor, out: torch.Tensor, count: torch.Tensor) -> None:
    n = x.numel()
    # TODO: choose a tile, and the number of tiles
    # TODO: allocate the memory through which blocks communicate, with torch.zeros; it must be 0 in every call
    # TODO: cuda.kernel("w25b_compact.cu", "compact")[tiles, THREADS](x, out, count, status, next_tile, n)
    raise NotImplementedError("launch the kernel")
