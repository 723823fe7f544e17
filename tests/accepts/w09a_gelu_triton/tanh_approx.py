"""tanh.approx.f32, one instruction, as inline assembly."""

import torch
import triton
import triton.language as tl


@triton.jit
def fast_tanh(x):
    return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def gelu_kernel(x, out, n, TANH: tl.constexpr, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * BLOCK
    place = start + tl.arange(0, BLOCK)
    value = tl.load(x + place, mask=place < n).to(tl.float32)
    if TANH:
        half = 0.5 * value
        result = half + half * fast_tanh(value * (0.79788456 + 0.035677408 * value * value))
    else:
        result = 0.5 * value * (1 + tl.erf(value * 0.70710678))
    tl.store(out + place, result.to(out.dtype.element_ty), mask=place < n)


def gelu(x: torch.Tensor, approximate: str) -> torch.Tensor:
    out = torch.empty_like(x)
    gelu_kernel[triton.cdiv(x.numel(), 2048),](x, out, x.numel(), approximate == "tanh", 2048, num_warps=8)
    return out
