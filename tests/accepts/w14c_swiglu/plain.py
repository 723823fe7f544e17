"""A program per tile, pointers and masks; gate and up are kept for the backward pass, whose products are one kernel."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["m"])
def forward(x, w, h, kept, m, n, k, KEEP: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    gate = tl.zeros((ROWS, COLUMNS), tl.float32)
    up = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, k, DEPTH):
        across = start + tl.arange(0, DEPTH)[None, :]
        down = start + tl.arange(0, DEPTH)[:, None]
        left = tl.load(x + rows * k + across, mask=(rows < m) & (across < k), other=0.0)
        of_gate = tl.load(w + columns * k + down, mask=(columns < n) & (down < k), other=0.0)
        of_up = tl.load(w + (n + columns) * k + down, mask=(columns < n) & (down < k), other=0.0)
        gate = tl.dot(left, of_gate, gate)
        up = tl.dot(left, of_up, up)
    inside = (rows < m) & (columns < n)
    if KEEP:
        tl.store(kept + rows * 2 * n + columns, gate.to(kept.dtype.element_ty), mask=inside)
        tl.store(kept + rows * 2 * n + n + columns, up.to(kept.dtype.element_ty), mask=inside)
    made = gate * tl.sigmoid(gate) * up
    tl.store(h + rows * n + columns, made.to(h.dtype.element_ty), mask=inside)


@triton.jit
def gate_backward(kept, dh, n, BLOCK: tl.constexpr):
    """In place: what gate and up were become their gradients."""
    row = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < n
    gate = tl.load(kept + row * 2 * n + column, mask=inside).to(tl.float32)
    up = tl.load(kept + row * 2 * n + n + column, mask=inside).to(tl.float32)
    d = tl.load(dh + row * n + column, mask=inside).to(tl.float32)
    sigmoid = tl.sigmoid(gate)
    d_gate = d * up * sigmoid * (1 + gate * (1 - sigmoid))
    d_up = d * gate * sigmoid
    tl.store(kept + row * 2 * n + column, d_gate.to(kept.dtype.element_ty), mask=inside)
    tl.store(kept + row * 2 * n + n + column, d_up.to(kept.dtype.element_ty), mask=inside)


@triton.jit
def product(out, a, b, m, n, k, a_row, a_k, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, k, DEPTH):
        across = start + tl.arange(0, DEPTH)[None, :]
        down = start + tl.arange(0, DEPTH)[:, None]
        left = tl.load(a + rows * a_row + across * a_k, mask=(rows < m) & (across < k), other=0.0)
        right = tl.load(b + down * n + columns, mask=(down < k) & (columns < n), other=0.0)
        total = tl.dot(left, right, total)
    tl.store(out + rows * n + columns, total.to(out.dtype.element_ty), mask=(rows < m) & (columns < n))


def multiply(a, b):
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n)
    product[triton.cdiv(m, 64), triton.cdiv(n, 64)](out, a, b, m, n, k, *a.stride(), 64, 64, 32, num_stages=2)
    return out


def swiglu(x, w, dh):
    (m, k), n = x.shape, w.shape[0] // 2
    h = x.new_empty(m, n)
    kept = None if dh is None else x.new_empty(m, 2 * n)
    grid = triton.cdiv(m, 64), triton.cdiv(n, 64)
    forward[grid](x, w, h, h if kept is None else kept, m, n, k, kept is not None, 64, 64, 32, num_stages=2)
    if kept is None:
        return h
    gate_backward[m, triton.cdiv(n, 1024)](kept, dh, n, 1024)
    return h, multiply(kept, w), multiply(kept.T, x)
