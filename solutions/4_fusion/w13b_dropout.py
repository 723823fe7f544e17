"""Dropout whose mask is never stored.

dropout(x, p, seed, offset) takes a contiguous float32 or bfloat16 vector of any size. It returns a new vector of that
dtype, computed in float32, that contains x / (1 - p) for each element it keeps and 0 for each element it drops. It
drops an element with probability p, 0 <= p < 1, which you may round to a multiple of 2^-16. x has finite values.
dropout_backward(dout, p, seed, offset) returns the gradient of x, which is dout / (1 - p) where the forward pass kept
the element, and 0 elsewhere. Its mask is the forward mask for the same p, seed, and offset. Do not store the mask in
memory.

The mask comes from a counter-based generator such as Philox (tl.rand, tl.randint4x), a stateless function of the seed
and a counter. seed and offset have 64 bits, and offset is a multiple of 4. Calls whose seeds differ, or whose ranges
from offset to offset + n do not overlap, must have independent masks. You choose which number belongs to which element.
Vectors start at a multiple of 16 bytes if n is a multiple of 16; they may have more than 2**32 elements.

The grader checks the values; the masks (the share of kept elements, agreement of forward and backward, and correlations
between elements, seeds, and offsets); the bytes and the memory; and on a GPU the time compared with
torch.native_dropout and its backward pass.

The grader enforces these limits on the largest case (n=32768 p=0.1 dtype=float32 differ=offset); smaller cases get some
slack for partial tiles. Each load or store may touch at most 1.3 times the sectors that its bytes require. In total,
global memory accesses may move at most 1.1 times the size of the inputs and outputs. Any workspace may be at most 0.01
times the size of the inputs and outputs.

Traffic: one read and one write in each pass, 8 bytes per element in float32 and 4 in bfloat16; the ceiling is copy
speed. PyTorch's operator moves one more byte per element, and it keeps a mask of n bytes until the backward pass. The
generator limits the kernel. An H200 has time for 64 instructions per float32 value and for 32 per bfloat16 value, and
ten rounds of Philox take about 50. With one Philox call per element, the kernel reaches 0.58 of copy speed in float32
and 0.29 in bfloat16. A call returns 128 bits. With four 32-bit numbers per call, the kernel reaches copy speed in
float32 and 0.8 of it in bfloat16; with eight 16-bit numbers per call, it reaches copy speed in bfloat16, too (1.00).
With 16 bits, p is rounded to a multiple of 2^-16; Flash-Attention 2 uses only 8. Philox: Salmon, Moraes, Dror and Shaw,
Parallel Random Numbers: As Easy as 1, 2, 3 (2011).
"""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def keep_mask(seed, position, p, BITS: tl.constexpr, BLOCK: tl.constexpr):
    """Return which of BLOCK elements are kept, starting at a stream position that is a multiple of 4."""
    RUN: tl.constexpr = 128 // BITS  # elements per run of Philox, which makes 128 bits
    a, b, c, d = tl.randint4x(seed, position // 4 + tl.arange(0, BLOCK // RUN) * (RUN // 4))
    random = tl.join(tl.join(a, c), tl.join(b, d)).reshape(4 * BLOCK // RUN)  # a, b, c, d of a run, then the next run
    if BITS == 16:
        random = tl.join(random & 0xFFFF, random >> 16).reshape(BLOCK)
    return random >= (p * 2.0**BITS + 0.5).to(tl.uint32)


@triton.jit
def dropout_block(
    out, x, n, p, scale, seed, offset, start, BITS: tl.constexpr, BLOCK: tl.constexpr, MASKED: tl.constexpr
):
    offs = start + tl.arange(0, BLOCK)
    mask = offs < n if MASKED else None
    x_scaled = tl.load(x + offs, mask=mask).to(tl.float32) * scale
    result = tl.where(keep_mask(seed, offset + start, p, BITS, BLOCK), x_scaled, 0.0)
    tl.store(out + offs, result.to(out.dtype.element_ty), mask=mask)


@triton.jit
def dropout_blocks(out, x, n, p, scale, seed, offset, BLOCK: tl.constexpr):
    """Process BLOCK elements per program."""
    BITS: tl.constexpr = 16 if x.dtype.element_ty.primitive_bitwidth == 16 else 32
    start = tl.program_id(0).to(tl.int64) * BLOCK
    if start + BLOCK <= n:
        dropout_block(out, x, n, p, scale, seed, offset, start, BITS, BLOCK, False)
    else:
        dropout_block(out, x, n, p, scale, seed, offset, start, BITS, BLOCK, True)


def dropout(x: torch.Tensor, p: float, seed: int, offset: int) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    if n:
        dropout_blocks[triton.cdiv(n, BLOCK),](out, x, n, p, 1 / (1 - p), seed, offset, BLOCK)
    return out


def dropout_backward(dout: torch.Tensor, p: float, seed: int, offset: int) -> torch.Tensor:
    return dropout(dout, p, seed, offset)


def two_layers(
    x: torch.Tensor, dout: torch.Tensor, p: float, seed: int, offset: int, next_seed: int, next_offset: int
) -> tuple[torch.Tensor, ...]:
    """Run the forward passes of two layers, then their backward passes, last layer first; the grader calls this."""
    out = dropout(x[0], p, seed, offset)
    next_out = dropout(x[1], p, next_seed, next_offset)
    next_dx = dropout_backward(dout[1], p, next_seed, next_offset)
    dx = dropout_backward(dout[0], p, seed, offset)
    return out, next_out, dx, next_dx
