"""A tile per program, pointers and masks, as in Triton's tutorial on products, and the epilogue as it reads."""

import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["m"], do_not_specialize_on_alignment=["bias", "scale"])
def tiles(
    a, b, bias, scale, residual, out, m, n, k, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    depth = tl.arange(0, DEPTH)
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    at = rows[:, None] * n + columns[None, :]
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, k, DEPTH):
        inner = start + depth
        x = tl.load(a + rows[:, None] * k + inner[None, :], mask=(rows[:, None] < m) & (inner[None, :] < k), other=0.0)
        y = tl.load(b + inner.to(tl.int64)[:, None] * n + columns, mask=(inner[:, None] < k) & (columns < n), other=0.0)
        total = tl.dot(x, y, total)
    total += tl.load(bias + columns, mask=columns < n, other=0.0).to(tl.float32)[None, :]
    z = 0.7978845608028654 * (total + 0.044715 * total * total * total)
    total *= tl.sigmoid(2 * z)
    total *= tl.load(scale + rows, mask=rows < m, other=0.0)[:, None]
    total += tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=inside)


def gemm_epilogue(a, b, bias, scale, residual):
    (m, k), n = a.shape, b.shape[1]
    out = torch.empty_like(residual)
    grid = (triton.cdiv(m, 64), triton.cdiv(n, 64))
    tiles[grid](a, b, bias, scale, residual, out, m, n, k, 64, 64, 32, num_warps=4, num_stages=2)
    return out
