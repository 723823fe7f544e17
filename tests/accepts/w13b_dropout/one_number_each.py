"""As Triton's tutorial has it: tl.rand of the element's place in the stream."""

import torch
import triton
import triton.language as tl


@triton.jit
def seeded_dropout(x_ptr, output_ptr, n_elements, p, seed, offset, BLOCK_SIZE: tl.constexpr):
    block_start = tl.program_id(axis=0).to(tl.int64) * BLOCK_SIZE
    offsets = block_start + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    x_keep = tl.rand(seed, offset + offsets) >= p
    output = tl.where(x_keep, x / (1 - p), 0.0)
    tl.store(output_ptr + offsets, output, mask=mask)


def dropout(x: torch.Tensor, p: float, seed: int, offset: int) -> torch.Tensor:
    output = torch.empty_like(x)
    seeded_dropout[(triton.cdiv(x.numel(), 1024),)](x, output, x.numel(), p, seed, offset, BLOCK_SIZE=1024)
    return output


def two_layers(x, dout, p, seed, offset, next_seed, next_offset):
    out = dropout(x[0], p, seed, offset)
    next_out = dropout(x[1], p, next_seed, next_offset)
    next_dx = dropout(dout[1], p, next_seed, next_offset)
    return out, next_out, dropout(dout[0], p, seed, offset), next_dx
