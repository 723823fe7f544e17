"""Dropout whose mask is never stored.

dropout(x, p, seed, offset) takes a contiguous vector of float32 or bfloat16, of any size, and returns x / (1 - p) where
an element is kept and 0 where it is dropped, as a new vector of that dtype, computed in float32. An element is dropped
with the probability p, 0 <= p < 1, which may be rounded to a multiple of 2^-16. x has finite values.
dropout_backward(dout, p, seed, offset) returns the gradient of x: dout / (1 - p) where the element was kept, else 0.
Its mask is the mask of the forward pass with the same p, seed and offset. The mask must not be stored in memory.

The mask comes from a counter-based generator such as Philox (tl.rand, tl.randint4x): a function of the seed and of a
counter, with no state. seed has 64 bits, and so has offset, a multiple of 4. Calls whose ranges offset to offset + n do
not overlap, or whose seeds differ, have independent masks. You choose which number belongs to which element. Vectors
start at a multiple of 16 bytes if n is a multiple of 16; they may have more than 2**32 elements.

The grader checks the values; the masks (the share that is kept, forward against backward, and correlations between
elements, seeds and offsets); bytes and memory; on a GPU the time against torch.native_dropout and its backward pass.

Limits on the largest case, with room for edges on smaller ones: at most 1.3 times the sectors that the bytes of its
loads and stores need; at most 1.1 times the bytes of inputs and outputs moved; at most 0.01 times the bytes of inputs
and outputs as a workspace.
"""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def dropout_blocks(out, x, n, p, scale, seed, offset, BLOCK: tl.constexpr):
    """One program for BLOCK elements."""
    # TODO: the offsets of this program's elements, their random numbers, tl.load, tl.where, tl.store


def dropout(x: torch.Tensor, p: float, seed: int, offset: int) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    raise NotImplementedError("TODO: launch dropout_blocks, then delete this line")
    return out


def dropout_backward(dout: torch.Tensor, p: float, seed: int, offset: int) -> torch.Tensor:
    raise NotImplementedError("TODO: the same mask again, then delete this line")


def two_layers(
    x: torch.Tensor, dout: torch.Tensor, p: float, seed: int, offset: int, next_seed: int, next_offset: int
) -> tuple[torch.Tensor, ...]:
    """What is graded: the forward passes of two layers, then their backward passes, the last layer first."""
    out = dropout(x[0], p, seed, offset)
    next_out = dropout(x[1], p, next_seed, next_offset)
    next_dx = dropout_backward(dout[1], p, next_seed, next_offset)
    dx = dropout_backward(dout[0], p, seed, offset)
    return out, next_out, dx, next_dx
