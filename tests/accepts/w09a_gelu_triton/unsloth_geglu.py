"""Unsloth's and Liger's way: two kernels, tanh and erf of libdevice, 64 bits only where they are needed."""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

BLOCK_SIZE = 1024
INT32_SAFETY_BUFFER = 2**31 - BLOCK_SIZE * 4


@triton.jit
def _offsets(n_elements, BLOCK_SIZE: tl.constexpr, LONG_INDEXING: tl.constexpr):
    block_idx = tl.program_id(0)
    if LONG_INDEXING:
        offsets = block_idx.to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE).to(tl.int64)
    else:
        offsets = block_idx * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    return offsets, offsets < n_elements


@triton.jit
def _exact_forward_kernel(e, h, n_elements, BLOCK_SIZE: tl.constexpr, LONG_INDEXING: tl.constexpr):
    offsets, mask = _offsets(n_elements, BLOCK_SIZE, LONG_INDEXING)
    e_row = tl.load(e + offsets, mask=mask, other=0).to(tl.float32)
    f_row = 0.5 * e_row * (libdevice.erf(tl.math.rsqrt(2.0) * e_row) + 1.0)
    tl.store(h + offsets, f_row.to(h.dtype.element_ty), mask=mask)


@triton.jit
def _approx_forward_kernel(e, h, n_elements, BLOCK_SIZE: tl.constexpr, LONG_INDEXING: tl.constexpr):
    offsets, mask = _offsets(n_elements, BLOCK_SIZE, LONG_INDEXING)
    s = 0.7978845608028654
    e_row = tl.load(e + offsets, mask=mask, other=0).to(tl.float32)
    f_row = 0.5 * e_row * (libdevice.tanh(s * e_row * (1.0 + 0.044715 * e_row * e_row)) + 1.0)
    tl.store(h + offsets, f_row.to(h.dtype.element_ty), mask=mask)


def gelu(x: torch.Tensor, approximate: str) -> torch.Tensor:
    out = torch.empty_like(x)
    n_elements = x.numel()
    grid = lambda meta: (triton.cdiv(n_elements, meta["BLOCK_SIZE"]),)  # noqa: E731
    kernel = _approx_forward_kernel if approximate == "tanh" else _exact_forward_kernel
    kernel[grid](x, out, n_elements, BLOCK_SIZE=BLOCK_SIZE, LONG_INDEXING=n_elements > INT32_SAFETY_BUFFER)
    return out
