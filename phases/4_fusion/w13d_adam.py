"""AdamW over a list of tensors in one launch: horizontal fusion.

adamw(steps, lr, beta1, beta2, eps, weight_decay, *tensors) performs one step of AdamW on a whole model, in place, and
returns nothing. steps contains a number t per parameter, which counts that parameter's steps, including this one.
tensors are all parameters, then the gradients, the first moments (exp_avg), and the second moments (exp_avg_sq), each
in the same order. All parameters and gradients have the same dtype, float32 or bfloat16; the moments and the arithmetic
are float32. For each element p with gradient g and moments m and v:

    p = p - lr * weight_decay * p
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g * g
    p = p - lr / (1 - beta1**t) * m / (sqrt(v) / sqrt(1 - beta2**t) + eps)

Tensors are contiguous and of any size, including empty. There may be thousands of them, with a few elements or a
billion. An address is a multiple of the element size, but not necessarily of anything larger. No two tensors share
memory. The grader checks the values, the bytes moved, and that there is one launch for the whole list. On a GPU, it
compares the time with one launch per tensor.

The grader enforces these limits on the largest case (model=odd tensors=41 step=20 dtype=float32 begin=aligned); smaller
cases get some slack for partial tiles. In total, global memory accesses may move at most 1.6 times the size of the
inputs and outputs. A call may launch at most 1 kernel.

Start with the table, with one row per tensor: its addresses, its length, and the values that depend on its step. Then
let each program find its tensor and its part of that tensor.
"""

import numpy as np
import torch
import triton
import triton.language as tl


@triton.jit
def adamw_chunks(table, owners, decay, beta1, rest1, beta2, rest2, eps, PARAM: tl.constexpr, BLOCK: tl.constexpr):
    """Update one chunk of BLOCK elements of one tensor per program."""
    # TODO: find the tensor and the chunk; load p, g, m and v; store p, m and v


def adamw(
    steps: list[int],
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    *tensors: torch.Tensor,
) -> None:
    raise NotImplementedError("TODO: make the table, launch once, then delete this line")
    count = len(steps)
    params = tensors[:count]
