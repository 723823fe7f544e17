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

Traffic: one read and one write, 8 bytes per element in float32 and 4 in the 16-bit dtypes; the ceiling is copy speed.
Two kernels move twice as many bytes. The bias comes from L1, or from L2 if it is long. As a vector, the matrix is
aligned whatever its width is, so the kernel loads 16-byte vectors even if rows start at unaligned addresses. There, a
kernel with one program per row reaches only 0.5 to 0.7 of copy speed in bfloat16. The price is that the kernel has to
compute each element's column. An H200 has time for 32 instructions per bfloat16 value. With the remainder operator, a
division, the kernel reaches 0.92 of copy speed; with a multiplication (Granlund and Montgomery, 1994), it reaches 0.99
to 1.02, at any width.
"""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def bias_relu_block(
    out, x, bias, n, columns, reciprocal, start, EVEN: tl.constexpr, BLOCK: tl.constexpr, MASKED: tl.constexpr
):
    offs = tl.arange(0, BLOCK)
    mask = start + offs < n if MASKED else None
    # The remainder by a multiplication: reciprocal is 2^32 / columns, truncated, so the quotient may be 1 too small.
    pos = (start % columns).to(tl.uint32) + offs.to(tl.uint32)
    width = columns.to(tl.uint32)
    rem = pos - tl.umulhi(pos, tl.full([BLOCK], reciprocal, tl.uint32)) * width
    cols = tl.where(rem < width, rem, rem - width)
    if EVEN:
        cols = tl.max_contiguous(tl.multiple_of(cols, 16), 16)
    z = tl.load(x + start + offs, mask=mask).to(tl.float32) + tl.load(bias + cols, mask=mask).to(tl.float32)
    y = tl.maximum(z, 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(out + start + offs, y.to(out.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["columns", "reciprocal"])
def bias_relu_blocks(out, x, bias, n, columns, reciprocal, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    """One program for BLOCK elements."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    # A vector load is masked completely or not at all, so only the last program needs a mask.
    if start + BLOCK <= n:
        bias_relu_block(out, x, bias, n, columns, reciprocal, start, EVEN, BLOCK, False)
    else:
        bias_relu_block(out, x, bias, n, columns, reciprocal, start, EVEN, BLOCK, True)


def bias_relu(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    if n:
        columns = x.shape[1]
        grid = (triton.cdiv(n, BLOCK),)
        bias_relu_blocks[grid](out, x, bias, n, columns, (2**32 - 1) // columns, columns % 16 == 0, BLOCK)
    return out
