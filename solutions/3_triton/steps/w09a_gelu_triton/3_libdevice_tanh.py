"""Tanh: libdevice, NVIDIA's math library for LLVM, has the tanh that Triton's language lacks."""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def gelu_kernel(x_ptr, output_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    phi = 0.5 * (1 + libdevice.tanh(0.79788456 * (x + 0.044715 * x * x * x)))
    tl.store(output_ptr + offsets, (x * phi).to(output_ptr.dtype.element_ty), mask=mask)


def gelu(x: torch.Tensor) -> torch.Tensor:
    output = torch.empty_like(x)
    gelu_kernel[(triton.cdiv(x.numel(), 1024),)](x, output, x.numel(), 1024)
    return output
