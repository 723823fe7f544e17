"""Stencil: the launch.

stencil(x) takes a contiguous float32 vector of any length and returns a new one of the same length, smoothed with a
triangle of radius 8: out[i] = sum of (9 - |k|) * x[i + k] / 81 for k = -8 .. 8, where x is 0 outside the vector. x is
not always aligned to 16 bytes.
Tensors may have more than 2**32 elements: offsets need 64 bits.

Write the kernel in w02c_stencil.cu, then launch it here. The grader checks the values, the bytes that the kernel
requests, its bank conflicts, and on a GPU the time against a kernel in which every thread loads its 17 values itself.

Limits on the largest case, with room for edges on smaller ones: at most 1.3 times the sectors that the bytes of its
loads and stores need; at most 1.2 times the bytes of inputs and outputs moved; at most 0.5 wavefronts per request added
by bank conflicts.

Traffic: 8 bytes per element, one read and one write, plus 16 elements of halo for each tile of 512: 1.6% of all.
Operations: 34 per element. An H200 copies 535 billion elements per second, which takes 18 TFLOP/s of the 55 that
multiply-adds reach: memory bounds it, and the measured ceiling is 8 n bytes at the rate of a copy.

What is in the way are instructions, not bytes. As the formula reads, 95% of the sectors hit L1, and 78% of all issue
slots are taken (ncu). On an H200, at 2^26 elements, where a copy takes 130 us:

    kernel                                             us    share of a copy's speed
    as the formula reads, 32-bit indices              296    0.44
    the baseline of the exercise, 64-bit indices      459    0.28
    a tile, one output per thread                     355    0.37
    four outputs per thread, float4 reads of a tile   187    0.70
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
