"""Half: x / 2 takes the loads, the stores and the conversions of every formula, and one multiplication."""

import torch
import triton
import triton.language as tl


@triton.jit
def gelu_kernel(x_ptr, output_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    phi = 0.5
    tl.store(output_ptr + offsets, (x * phi).to(output_ptr.dtype.element_ty), mask=mask)


def gelu(x: torch.Tensor) -> torch.Tensor:
    output = torch.empty_like(x)
    gelu_kernel[(triton.cdiv(x.numel(), 1024),)](x, output, x.numel(), 1024)
    return output
