"""Programs that take rows in turn, partial sums for each of them, and PyTorch's sum of those few."""

import torch
import triton
import triton.language as tl

PROGRAMS = 8


@triton.jit
def backward_rows(dx, dweights, dbiases, dy, x, weight, mean, rstd, rows, columns, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    gain = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    dweight = tl.zeros([BLOCK], tl.float32)
    dbias = tl.zeros([BLOCK], tl.float32)
    for row in range(program, rows, tl.num_programs(0)):
        offsets = row.to(tl.int64) * columns + column
        upstream = tl.load(dy + offsets, mask=inside, other=0.0).to(tl.float32)
        value = tl.load(x + offsets, mask=inside, other=0.0).to(tl.float32)
        scale = tl.load(rstd + row)
        xhat = tl.where(inside, (value - tl.load(mean + row)) * scale, 0.0)
        g = upstream * gain
        level = tl.sum(g, axis=0) / columns
        along = tl.sum(g * xhat, axis=0) / columns
        tl.store(dx + offsets, (g - level - xhat * along) * scale, mask=inside)
        dweight += upstream * xhat
        dbias += upstream
    tl.store(dweights + program * columns + column, dweight, mask=inside)
    tl.store(dbiases + program * columns + column, dbias, mask=inside)


@triton.jit
def sum_rows(out, partial, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.arange(0, ROWS)[:, None]
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(0, rows, ROWS):
        here = first + row
        part = tl.load(partial + here * columns + column[None, :], mask=(here < rows) & inside[None, :], other=0.0)
        total += tl.sum(part, axis=0)
    tl.store(out + column, total, mask=inside)


def layernorm_backward(dy, x, weight, mean, rstd):
    rows, columns = x.shape
    dx, dweight, dbias = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
    programs = min(rows, PROGRAMS)
    partial = torch.empty(2, programs, columns, dtype=torch.float32, device=x.device)
    block = triton.next_power_of_2(columns)
    warps = min(32, max(4, block // 512))
    backward_rows[(programs,)](dx, *partial, dy, x, weight, mean, rstd, rows, columns, block, num_warps=warps)
    for out, sums in zip((dweight, dbias), partial, strict=True):
        sum_rows[(triton.cdiv(columns, 128),)](out, sums, programs, columns, 8, 128)
    return dx, dweight, dbias
