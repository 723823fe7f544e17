"""Residual addition and RMS normalization in one kernel.

add_rmsnorm(x, residual, weight, eps) takes two contiguous matrices of the same shape and dtype (bfloat16 or float32, 1
to 32768 columns) and a vector with one weight per column. It returns (y, h) in that dtype. h is x + residual, rounded
to the dtype, and y is h * weight / sqrt(mean of h^2 over the row + eps), computed from the rounded h. Compute in
float32. Tensors may have more than 2**32 elements, so offsets need 64 bits.

Start from the fused softmax, in which one program holds a row in registers. Write the sum once, and never read it back.
The grader checks the values and the bytes moved, and on a GPU it compares the time with an addition followed by
rms_norm.

The grader enforces these limits on the largest case (rows=35 columns=2048 dtype=float32); smaller cases get some slack
for partial tiles. Each load or store may touch at most 1.3 times the sectors that its bytes require. In total, global
memory accesses may move at most 1.4 times the size of the inputs and outputs. Bank conflicts may add at most 1
wavefront per request.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def add_rmsnorm_kernel(Y, H, X, Residual, W, N, eps, BLOCK_SIZE: tl.constexpr):
    """Add and normalize a row of N columns, which one program holds as a block of BLOCK_SIZE columns."""
    row = tl.program_id(0).to(tl.int64)
    # TODO: load x, residual and w; store h; reduce; store y


def add_rmsnorm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    raise NotImplementedError("TODO: choose BLOCK_SIZE and num_warps, launch, then delete this line")
    y, h = torch.empty_like(x), torch.empty_like(x)
    return y, h
