"""One row per program: a row stays in registers, and each program reads weight and bias again."""

import torch
import triton
import triton.language as tl


@triton.jit
def layer_norm_kernel(Y, X, W, B, N, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * N
    cols = tl.arange(0, BLOCK_SIZE)
    mask = cols < N
    x = tl.load(X + row + cols, mask=mask, other=0.0).to(tl.float32)
    centered = tl.where(mask, x - tl.sum(x, axis=0) / N, 0.0)
    rstd = tl.rsqrt(tl.sum(centered * centered, axis=0) / N + 1e-5)
    w = tl.load(W + cols, mask=mask)
    b = tl.load(B + cols, mask=mask)
    tl.store(Y + row + cols, (centered * rstd * w + b).to(Y.dtype.element_ty), mask=mask)


def layernorm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, num_warps: int = 8) -> torch.Tensor:
    rows, columns = x.shape
    y = torch.empty_like(x)
    layer_norm_kernel[(rows,)](y, x, weight, bias, columns, triton.next_power_of_2(columns), num_warps=num_warps)
    return y
