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
"""

import torch

from kernelpath.lanes import cuda


def oscillate(x: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    # TODO: cuda.kernel("w06c_divergence.cu", "oscillate")[grid, block](x, steps, out, x.numel())
    raise NotImplementedError("launch the kernel, then return out")
