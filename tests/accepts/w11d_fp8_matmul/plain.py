"""A tile per program, pointers and masks; a sum for each block of 128 along k, and scales as a grid of blocks."""

import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["m", "n", "k"])
def product(
    a, b, scale_a, scale_b, out, m, n, k, BLOCKS: tl.constexpr, SIDE: tl.constexpr, DEPTH: tl.constexpr
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * SIDE + tl.arange(0, SIDE)
    columns = tl.program_id(1).to(tl.int64) * SIDE + tl.arange(0, SIDE)
    inner = tl.arange(0, DEPTH)
    total = tl.zeros((SIDE, SIDE), tl.float32)
    for block in range(0, tl.cdiv(k, DEPTH)):
        within = block * DEPTH + inner < k
        start = block * DEPTH + inner
        x = tl.load(a + rows[:, None] * k + start, mask=(rows[:, None] < m) & within, other=0.0)
        y = tl.load(b + columns[:, None] * k + start, mask=(columns[:, None] < n) & within, other=0.0)
        part = tl.dot(x, y.T)
        if BLOCKS:
            of_rows = tl.load(scale_a + block.to(tl.int64) * m + rows, mask=rows < m, other=0.0)
            of_columns = tl.load(scale_b + columns // 128 * tl.cdiv(k, 128) + block, mask=columns < n, other=0.0)
            part = part * of_rows[:, None] * of_columns[None, :]
        total += part
    if not BLOCKS:
        total *= tl.load(scale_a) * tl.load(scale_b)
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(out + rows[:, None] * n + columns[None, :], total.to(tl.bfloat16), mask=inside)


def fp8_matmul(a, b, scale_a, scale_b):
    (m, k), n = a.shape, b.shape[0]
    out = torch.empty((m, n), dtype=torch.bfloat16, device=a.device)
    blocks = scale_a.numel() + scale_b.numel() > 2
    grid = (triton.cdiv(m, 64), triton.cdiv(n, 64))
    product[grid](a, b, scale_a, scale_b, out, m, n, k, blocks, 64, 128, num_warps=4, num_stages=2)
    return out
