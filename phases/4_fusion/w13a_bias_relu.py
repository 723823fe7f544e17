"""Bias and ReLU in one kernel.

bias_relu(x, bias) takes a contiguous float32, bfloat16, or float16 matrix of any size, and a vector of the same dtype
with one bias per column. Both start at a multiple of 16 bytes. It returns relu(x + bias) as a new matrix of that dtype.
Compute the sum in float32, and round once. NaN stays NaN, as in torch.relu. A matrix has fewer than 2**31 columns, but
it may have more than 2**32 elements, so offsets need 64 bits.

Eager PyTorch runs two kernels, an addition and a ReLU. Count their bytes before you write a fused kernel. The grader
checks the values, the bytes that the kernel moves, and on a GPU the time compared with torch.relu(x + bias).

The grader enforces these limits on the largest case (rows=32 columns=2048 dtype=float32); smaller cases get some slack
for partial tiles. Each load or store may touch at most 1.3 times the sectors that its bytes require. In total, global
memory accesses may move at most 1.7 times the size of the inputs and outputs.
"""

import torch
import triton
import triton.language as tl

BLOCK = 1024


# TODO: a kernel (@triton.jit, tl): the offsets of a program's elements, the column of each, two loads, one store


def bias_relu(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    raise NotImplementedError("TODO: launch your kernel, then delete this line")
    return out
