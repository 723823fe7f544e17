"""The Triton kernels. Matrices are contiguous, tensors keep their dtypes, and arithmetic is float32."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["rows"])
def add_rmsnorm_forward(y, h, rstd, x, residual, weight, rows, columns, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """h = x + residual, y = h * rstd * weight with rstd = 1 / sqrt(mean of h^2 + eps). ROWS rows for a program."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    mask = (row < rows) & (cols < columns)
    offs = row.to(tl.int64) * columns + cols
    s_row = tl.load(x + offs, mask=mask, other=0.0).to(tl.float32)
    s_row += tl.load(residual + offs, mask=mask, other=0.0).to(tl.float32)
    w_row = tl.load(weight + cols, mask=cols < columns, other=0.0).to(tl.float32)
    s_row = s_row.to(h.dtype.element_ty)
    tl.store(h + offs, s_row, mask=mask)
    s_row = s_row.to(tl.float32)
    rstd_row = tl.rsqrt(tl.sum(s_row * s_row, axis=1, keep_dims=True) / columns + eps)
    tl.store(rstd + row, rstd_row, mask=row < rows)
    tl.store(y + offs, (s_row * rstd_row * w_row).to(y.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["rows"])
def add_rmsnorm_backward(dx, partial, dy, dh, h, weight, rstd, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Compute dx = dh + the gradient through the norm. Each program sums dweight over its rows into a partial row."""
    cols = tl.arange(0, BLOCK)[None, :]
    w_row = tl.load(weight + cols, mask=cols < columns, other=0.0).to(tl.float32)
    dweight = tl.zeros([ROWS, BLOCK], tl.float32)
    for first in tl.range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS, num_stages=3):
        row = first + tl.arange(0, ROWS)[:, None]
        mask = (row < rows) & (cols < columns)
        offs = row.to(tl.int64) * columns + cols
        rstd_row = tl.load(rstd + row, mask=row < rows, other=0.0)
        xhat = tl.load(h + offs, mask=mask, other=0.0).to(tl.float32) * rstd_row
        dy_row = tl.load(dy + offs, mask=mask, other=0.0).to(tl.float32)
        ds_row = tl.load(dh + offs, mask=mask, other=0.0).to(tl.float32)
        wdy = dy_row * w_row
        c1 = tl.sum(wdy * xhat, axis=1, keep_dims=True) / columns
        tl.store(dx + offs, (ds_row + (wdy - xhat * c1) * rstd_row).to(dx.dtype.element_ty), mask=mask)
        dweight += dy_row * xhat
    ptrs = partial + tl.program_id(0) * columns + cols
    tl.store(ptrs, tl.sum(dweight, axis=0, keep_dims=True), mask=cols < columns)


@triton.jit(do_not_specialize=["stripes"])
def sum_stripes(out, partial, stripes, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Sum partial over its rows, in the same order in every run."""
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    acc = tl.zeros([ROWS, BLOCK], tl.float32)
    for first in tl.range(0, stripes, ROWS):
        row = first + tl.arange(0, ROWS)[:, None]
        acc += tl.load(partial + row * columns + cols, mask=(row < stripes) & (cols < columns), other=0.0)
    result = tl.sum(acc, axis=0, keep_dims=True).to(out.dtype.element_ty)
    tl.store(out + cols, result, mask=cols < columns)


@triton.jit
def swiglu_forward(act, gate_up, hidden, BLOCK: tl.constexpr):
    """Compute act = silu(gate) * up, with one program for BLOCK columns of a row."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ptrs = gate_up + row * (2 * hidden) + cols
    gate = tl.load(ptrs, mask=cols < hidden, other=0.0).to(tl.float32)
    up = tl.load(ptrs + hidden, mask=cols < hidden, other=0.0).to(tl.float32)
    silu = gate * tl.sigmoid(gate)
    tl.store(act + row * hidden + cols, (silu * up).to(act.dtype.element_ty), mask=cols < hidden)


@triton.jit
def swiglu_backward(dgate_up, gate_up, dact, hidden, BLOCK: tl.constexpr):
    """Compute the gradients of gate and up, which are adjacent."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    offs = row * (2 * hidden) + cols
    gate = tl.load(gate_up + offs, mask=cols < hidden, other=0.0).to(tl.float32)
    up = tl.load(gate_up + offs + hidden, mask=cols < hidden, other=0.0).to(tl.float32)
    dact_row = tl.load(dact + row * hidden + cols, mask=cols < hidden, other=0.0).to(tl.float32)
    sig = tl.sigmoid(gate)
    silu = gate * sig
    dgate = dact_row * up * (sig + silu * (1 - sig))
    tl.store(dgate_up + offs, dgate.to(dgate_up.dtype.element_ty), mask=cols < hidden)
    tl.store(dgate_up + offs + hidden, (dact_row * silu).to(dgate_up.dtype.element_ty), mask=cols < hidden)
