"""Residual addition and RMS normalization, fused.

add_rmsnorm(x, residual, weight, eps) takes two matrices of the same shape and dtype (bfloat16 or float32, contiguous,
1 to 32768 columns) and a vector of one weight a column. It returns (y, h) in that dtype:
h = x + residual, rounded to the dtype, and y = h * weight / sqrt(mean of h^2 over the row + eps). The arithmetic is float32.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def add_rmsnorm_rows(y, h, x, residual, weight, rows, columns, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < columns)
    offsets = row.to(tl.int64) * columns + column
    gain = tl.load(weight + column, mask=column < columns, other=0.0).to(tl.float32)
    left = tl.load(x + offsets, mask=inside, other=0.0).to(tl.float32)
    right = tl.load(residual + offsets, mask=inside, other=0.0).to(tl.float32)
    total = (left + right).to(h.dtype.element_ty)
    tl.store(h + offsets, total, mask=inside)
    total = total.to(tl.float32)
    scale = tl.rsqrt(tl.sum(total * total, axis=1, keep_dims=True) / columns + eps)
    tl.store(y + offsets, (total * scale * gain).to(y.dtype.element_ty), mask=inside)


def add_rmsnorm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    rows, columns = x.shape
    y, h = torch.empty_like(x), torch.empty_like(x)
    block = triton.next_power_of_2(columns)
    rows_each = max(1, 4096 // block)
    warps = min(max(block * rows_each // 1024, 4), 32)
    grid = (triton.cdiv(rows, rows_each),)
    add_rmsnorm_rows[grid](y, h, x, residual, weight, rows, columns, eps, rows_each, block, num_warps=warps)
    return y, h
