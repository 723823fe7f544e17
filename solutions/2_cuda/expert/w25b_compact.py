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

Traffic: each element takes 4 bytes read, each kept element takes 4 bytes written, and each tile takes 8 bytes of
status. The kernel is memory-bound. The kept elements of a tile move together in shared
memory, so that all stores of a tile are contiguous. A warp that stores its 32 neighbors directly touches 2.9 sectors
instead of 2 if half are kept, and the L2 cache merges the parts of a sector before they are written.

In a graded run on an H200, with 2**28 elements of which half are kept, this kernel took 599 us, and the three kernels
took 689 us. The look-back is the bottleneck. In one session, variants of this kernel took:
- warps store directly, without look-back, to wrong places: 403 us
- tiles of 4096 elements, one warp looks back: 633 us; the whole block looks back: 697 us
- 512 threads, tiles of 8192, as in this kernel, and at most 32 registers, so that four blocks fit on an SM: 611 us

Source: Billeter, Olsson, Assarsson, "Efficient Stream Compaction on Wide SIMD Many-Core Architectures" (2009), for
ranks by ballot; Merrill and Garland (2016) for the look-back.
"""

import torch

from kernelpath.lanes import cuda

THREADS, ITEMS = 512, 16
TILE = THREADS * ITEMS


def compact(x: torch.Tensor, out: torch.Tensor, count: torch.Tensor) -> None:
    n = x.numel()
    tiles = (n + TILE - 1) // TILE
    status = torch.zeros(tiles + 1, dtype=torch.int64, device=x.device)  # the last word counts the tiles taken
    next_tile = status[tiles:].view(torch.int32)
    cuda.kernel("w25b_compact.cu", "compact")[tiles, THREADS](x, out, count, status, next_tile, n)
