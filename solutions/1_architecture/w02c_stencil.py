"""Stencil: the launch.

stencil(x) takes a contiguous float32 vector of any length and returns a new vector of the same length, smoothed with a
triangular filter of radius 8: out[i] = sum of (9 - |k|) * x[i + k] / 81 for k = -8 .. 8, where x is 0 outside the
vector. x is not always aligned to 16 bytes. Tensors may have more than 2**32 elements, so offsets need 64 bits.

Write the kernel in w02c_stencil.cu, then launch it here. The grader checks the values, the bytes that the kernel
requests, its bank conflicts, and, on a GPU, its time compared with a kernel in which every thread loads its 17 values
itself.

The grader enforces these limits on the largest case (n=65536); smaller cases get some slack for partial tiles. Each
load or store may touch at most 1.3 times the sectors that its bytes require. In total, global memory accesses may move
at most 1.2 times the size of the inputs and outputs. Bank conflicts may add at most 0.5 wavefronts per request.

Traffic: the kernel moves 8 bytes per element, in one read and one write, plus 16 halo elements per tile of 512, 1.6% of
the traffic. Operations: 34 per element. An H200 copies 535 billion elements per second. At this rate, the kernel
performs 18 TFLOP/s of the 55 that multiply-adds reach, so it is memory bound, and the measured ceiling is 8 n bytes at
copy speed.

Instructions keep the kernel from this ceiling, not bytes. In a direct implementation of the formula, 95% of the sectors
hit in L1, and 78% of all issue slots are used (ncu). These are the times on an H200, at 2^26 elements, where a copy
takes 130 us:

    kernel                                             us    share of a copy's speed
    direct implementation, 32-bit indices             296    0.44
    the exercise's baseline, 64-bit indices           459    0.28
    a tile, one output per thread                     355    0.37
    four outputs per thread, float4 reads from a tile 187    0.70
    the same, float4 global loads, no division        137    0.95
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
