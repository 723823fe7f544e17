"""Stencil: the launch.

stencil(x) takes a contiguous float32 vector of any length and returns a new one of the same length, smoothed with a
triangle of radius 8: out[i] = sum of (9 - |k|) * x[i + k] / 81 for k = -8 .. 8, where x counts as 0 outside. x is not
always aligned to 16 bytes.
Tensors may have more than 2**32 elements: offsets need 64 bits.

Write the kernel in w02c_stencil.cu, then launch it here. The grader checks the values, the bytes that the kernel asks
for, its bank conflicts, and on a GPU the time against a kernel in which every thread loads its 17 values itself.

Traffic: 8 bytes an element, one read and one write, plus 16 elements of halo for each tile of 512: 1.6 % of all.
Operations: 34 an element. An H200 copies 535 thousand million elements in a second, so it takes 18 TFLOP/s of its 67:
memory bounds it, and the speed of light is 8 n bytes at the rate of a copy.

What is in the way is the number of loads. 17 of them an element, most of them across two lines of 128 bytes, keep L1
busy for about 33 cycles a warp, where the bytes take 14. On an H200, at 2^26 elements:

    kernel                                      loads an element       share of a copy's speed
    as the formula reads                        17, from L1                 0.28
    a tile, one element a thread                17, from shared memory      0.37
    a tile, four elements a thread              1.25 of 16 bytes            0.95
"""

import torch

from kernelpath.lanes import cuda

THREADS = 128
TILE = 4 * THREADS


def stencil(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    if n:
        aligned = "true" if x.data_ptr() % 16 == 0 else "false"
        cuda.kernel("w02c_stencil.cu", f"stencil<{aligned}>")[(n + TILE - 1) // TILE, THREADS](x, out, n)
    return out
