"""As the formulas read, with erf of the language and tanh from exponentials of a negative number."""

import torch
import triton
import triton.language as tl


@triton.jit
def gelu_kernel(x_ptr, out_ptr, n, FORMULA: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    if FORMULA == "tanh":
        z = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        e = tl.exp(-2 * tl.abs(z))
        tanh = (1 - e) / (1 + e)
        y = 0.5 * x * (1 + tl.where(z < 0, -tanh, tanh))
    else:
        y = 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))
    tl.store(out_ptr + offsets, y, mask=mask)


def gelu(x: torch.Tensor, approximate: str) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    gelu_kernel[(triton.cdiv(n, 512),)](x, out, n, approximate, 512)
    return out
