"""Divergence: the launch.

oscillate(x, steps) takes where each oscillator is released, float32, and how many time steps it is to be followed,
uint8, from 0 to 64. It returns where each of them is then, float32, in the same order. Oscillator::step() takes a step;
after none, an oscillator is still where it was released. There are from 1 to 2**31 - 1 oscillators, and neither tensor
is always aligned to 16 bytes. Steps may be all alike, or sorted, or 1 for most and 64 for a few.

Write the kernel in w06c_divergence.cu, then launch it here. Graded: the values, how many of a warp's 32 lanes are
active in its average instruction (at least 16, from 20,000 oscillators on: let each warp have some hundreds), and on a
GPU the time against a kernel with a thread for each oscillator.

Limits on the largest case, with room for edges on smaller ones: at least 16 active lanes in the average instruction.
"""

import torch

from kernelpath.lanes import cuda


def oscillate(x: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    # TODO: cuda.kernel("w06c_divergence.cu", "oscillate")[grid, block](x, steps, out, x.numel())
    raise NotImplementedError("launch the kernel, then return out")
