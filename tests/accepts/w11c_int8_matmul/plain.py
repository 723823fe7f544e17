"""A tile per program, pointers and masks, as Triton's tutorial on matrix products has them."""

import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["m", "n", "k"])
def product(
    a, b, scale_a, scale_b, out, m, n, k, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    inner = tl.arange(0, DEPTH)
    total = tl.zeros((ROWS, COLUMNS), tl.int32)
    for start in range(0, k, DEPTH):
        within = start + inner < k
        x = tl.load(a + rows[:, None] * k + start + inner, mask=(rows[:, None] < m) & within, other=0)
        y = tl.load(b + columns[:, None] * k + start + inner, mask=(columns[:, None] < n) & within, other=0)
        total = tl.dot(x, y.T, total, out_dtype=tl.int32)
    of_rows = tl.load(scale_a + rows, mask=rows < m, other=0.0)
    of_columns = tl.load(scale_b + columns, mask=columns < n, other=0.0)
    scaled = total.to(tl.float32) * of_rows[:, None] * of_columns[None, :]
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(out + rows[:, None] * n + columns[None, :], scaled.to(tl.bfloat16), mask=inside)


def int8_matmul(a, b, scale_a, scale_b):
    (m, k), n = a.shape, b.shape[0]
    out = torch.empty((m, n), dtype=torch.bfloat16, device=a.device)
    grid = (triton.cdiv(m, 64), triton.cdiv(n, 64))
    product[grid](a, b, scale_a, scale_b, out, m, n, k, 64, 64, 64, num_warps=4, num_stages=3)
    return out
