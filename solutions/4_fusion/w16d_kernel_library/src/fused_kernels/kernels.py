"""The Triton kernels. Matrices are contiguous, tensors keep their dtypes, and arithmetic is float32."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["rows"])
def add_rmsnorm_forward(y, h, rstd, x, residual, weight, rows, columns, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """h = x + residual, y = h * rstd * weight with rstd = 1 / sqrt(mean of h^2 + eps). ROWS rows for a program."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < columns)
    at = row.to(tl.int64) * columns + column
    total = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    total += tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
    gain = tl.load(weight + column, mask=column < columns, other=0.0).to(tl.float32)
    total = total.to(h.dtype.element_ty)
    tl.store(h + at, total, mask=inside)
    total = total.to(tl.float32)
    scale = tl.rsqrt(tl.sum(total * total, axis=1, keep_dims=True) / columns + eps)
    tl.store(rstd + row, scale, mask=row < rows)
    tl.store(y + at, (total * scale * gain).to(y.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows"])
def add_rmsnorm_backward(dx, partial, dy, dh, h, weight, rstd, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Compute dx = dh + the gradient through the norm. Each program sums dweight over its rows into a partial row."""
    column = tl.arange(0, BLOCK)[None, :]
    gain = tl.load(weight + column, mask=column < columns, other=0.0).to(tl.float32)
    dweight = tl.zeros([ROWS, BLOCK], tl.float32)
    for first in tl.range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS, num_stages=3):
        row = first + tl.arange(0, ROWS)[:, None]
        inside = (row < rows) & (column < columns)
        at = row.to(tl.int64) * columns + column
        scale = tl.load(rstd + row, mask=row < rows, other=0.0)
        xhat = tl.load(h + at, mask=inside, other=0.0).to(tl.float32) * scale
        upstream = tl.load(dy + at, mask=inside, other=0.0).to(tl.float32)
        through = tl.load(dh + at, mask=inside, other=0.0).to(tl.float32)
        g = upstream * gain
        along = tl.sum(g * xhat, axis=1, keep_dims=True) / columns
        tl.store(dx + at, (through + (g - xhat * along) * scale).to(dx.dtype.element_ty), mask=inside)
        dweight += upstream * xhat
    here = partial + tl.program_id(0) * columns + column
    tl.store(here, tl.sum(dweight, axis=0, keep_dims=True), mask=column < columns)


@triton.jit(do_not_specialize=["stripes"])
def sum_stripes(out, partial, stripes, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Sum partial over its rows, in the same order in every run."""
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for first in tl.range(0, stripes, ROWS):
        row = first + tl.arange(0, ROWS)[:, None]
        total += tl.load(partial + row * columns + column, mask=(row < stripes) & (column < columns), other=0.0)
    result = tl.sum(total, axis=0, keep_dims=True).to(out.dtype.element_ty)
    tl.store(out + column, result, mask=column < columns)


@triton.jit
def swiglu_forward(act, gate_up, hidden, BLOCK: tl.constexpr):
    """Compute act = silu(gate) * up, with one program for BLOCK columns of a row."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    at = gate_up + row * (2 * hidden) + column
    gate = tl.load(at, mask=column < hidden, other=0.0).to(tl.float32)
    up = tl.load(at + hidden, mask=column < hidden, other=0.0).to(tl.float32)
    silu = gate * tl.sigmoid(gate)
    tl.store(act + row * hidden + column, (silu * up).to(act.dtype.element_ty), mask=column < hidden)


@triton.jit
def swiglu_backward(dgate_up, gate_up, dact, hidden, BLOCK: tl.constexpr):
    """Compute the gradients of gate and up, which are adjacent."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    at = row * (2 * hidden) + column
    gate = tl.load(gate_up + at, mask=column < hidden, other=0.0).to(tl.float32)
    up = tl.load(gate_up + at + hidden, mask=column < hidden, other=0.0).to(tl.float32)
    upstream = tl.load(dact + row * hidden + column, mask=column < hidden, other=0.0).to(tl.float32)
    share = tl.sigmoid(gate)
    silu = gate * share
    dgate = upstream * up * (share + silu * (1 - share))
    tl.store(dgate_up + at, dgate.to(dgate_up.dtype.element_ty), mask=column < hidden)
    tl.store(dgate_up + at + hidden, (upstream * silu).to(dgate_up.dtype.element_ty), mask=column < hidden)
