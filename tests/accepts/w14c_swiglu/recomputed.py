"""Keeps nothing: the backward pass multiplies again, and makes the gradients of gate and up from sums in float32."""

import torch
import triton
import triton.language as tl


@triton.jit
def gates(
    x, w, dh, h, back, m, n, k, BACKWARD: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr
):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    gate = tl.zeros((ROWS, COLUMNS), tl.float32)
    up = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, k, DEPTH):
        across, down = start + tl.arange(0, DEPTH)[None, :], start + tl.arange(0, DEPTH)[:, None]
        left = tl.load(x + rows * k + across, mask=(rows < m) & (across < k), other=0.0)
        kept = (columns < n) & (down < k)
        gate = tl.dot(left, tl.load(w + columns * k + down, mask=kept, other=0.0), gate)
        up = tl.dot(left, tl.load(w + (n + columns) * k + down, mask=kept, other=0.0), up)
    inside = (rows < m) & (columns < n)
    shut = 1 / (1 + tl.exp(gate))
    if BACKWARD:
        d = tl.load(dh + rows * n + columns, mask=inside, other=0.0).to(tl.float32)
        silu = gate * (1 - shut)
        d_gate = d * up * (1 - shut + silu * shut)
        tl.store(back + rows * 2 * n + columns, d_gate.to(back.dtype.element_ty), mask=inside)
        tl.store(back + rows * 2 * n + n + columns, (d * silu).to(back.dtype.element_ty), mask=inside)
    else:
        tl.store(h + rows * n + columns, (gate * (1 - shut) * up).to(h.dtype.element_ty), mask=inside)


@triton.jit
def product(out, a, b, m, n, k, a_row, a_k, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, k, DEPTH):
        across, down = start + tl.arange(0, DEPTH)[None, :], start + tl.arange(0, DEPTH)[:, None]
        left = tl.load(a + rows * a_row + across * a_k, mask=(rows < m) & (across < k), other=0.0)
        right = tl.load(b + down * n + columns, mask=(down < k) & (columns < n), other=0.0)
        total = tl.dot(left, right, total)
    tl.store(out + rows * n + columns, total.to(out.dtype.element_ty), mask=(rows < m) & (columns < n))


def multiply(a, b):
    (m, k), n = a.shape, b.shape[1]
    out = torch.empty(m, n, dtype=a.dtype, device=a.device)
    product[triton.cdiv(m, 64), triton.cdiv(n, 64)](out, a, b, m, n, k, *a.stride(), 64, 64, 32, num_stages=2)
    return out


def swiglu(x, w, dh):
    (m, k), n = x.shape, w.shape[0] // 2
    h = torch.empty(m, n, dtype=x.dtype, device=x.device)
    grid = triton.cdiv(m, 64), triton.cdiv(n, 64)
    gates[grid](x, w, x, h, h, m, n, k, False, 64, 64, 32, num_stages=2)
    if dh is None:
        return h
    back = torch.empty(m, 2 * n, dtype=x.dtype, device=x.device)
    gates[grid](x, w, dh, h, back, m, n, k, True, 64, 64, 32, num_stages=2)
    return h, multiply(back, w), multiply(back.T, x)
