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
"""

import torch

from kernelpath.lanes import cuda


def stencil(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    # TODO: choose the block and how many outputs it computes, for example 256 threads with one output each; launch
    # TODO: cuda.kernel("w02c_stencil.cu", "stencil")[blocks, threads](x, out, n)
    raise NotImplementedError("launch the kernel, then return out")
