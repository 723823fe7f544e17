"""Divergence: the launch.

oscillate(x, steps) takes each oscillator's initial position (float32) and its number of time steps (uint8, from 0 to
64). It returns each oscillator's final position (float32), in the same order. Oscillator::step() advances by one step;
after 0 steps, an oscillator is still at its initial position. There are from 1 to 2**31 - 1 oscillators, and neither
tensor is always aligned to 16 bytes. The numbers of steps may be all equal, or sorted, or 1 for most oscillators and 64
for a few.

Write the kernel in w06c_divergence.cu, then launch it here. The grader checks the values, how many of a warp's 32 lanes
are active in its average instruction (at least 16 for 20,000 or more oscillators, so give each warp several hundred),
and, on a GPU, the time compared with a kernel with one thread per oscillator.

The grader enforces this limit on the largest case (n=32771 distribution=mixed); smaller cases get some slack for
partial tiles. On average, an instruction must have at least 16 active lanes.

Traffic: 9 bytes per oscillator. Each time step takes 29 to 38 operations, and mixed oscillators take 15 steps on
average, so arithmetic sets the ceiling. A warp takes as many steps as the slowest of its oscillators, 57 on average;
sorted in tiles of 2048, it takes few more than its oscillators need. The sort is a counting sort, as in radix sorts:
Satish, Harris, Garland, "Designing efficient sorting algorithms for manycore GPUs" (2009).

Measured for 2^25 oscillators with mixed steps on an H200: 483 us, 3.1× faster than a thread per oscillator. The expert
kernel takes 0.80 of that time, because it computes a step with 29 operations. It also leaves tiles that need no sort
unchanged, and adds up the counts with a warp instead of a thread. Refilling idle lanes instead: Aila, Laine,
"Understanding the efficiency of ray traversal on GPUs" (2009).
"""

import torch

from kernelpath.lanes import cuda

THREADS = 256
TILE = 8 * THREADS  # the kernel's TILE, since ITEMS_PER_THREAD is 8


def oscillate(x: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    kernel = cuda.kernel("w06c_divergence.cu", "oscillate")
    blocks = (x.numel() + TILE - 1) // TILE
    if blocks > 0:
        kernel[blocks, THREADS](x, steps, out, x.numel())
    return out
