import triton
import triton.language as tl


@triton.jit
def norm_kernel(y, h, x, residual, weight, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    total = tl.load(x + row * columns + column, mask=mask, other=0.0).to(tl.float32)
    total += tl.load(residual + row * columns + column, mask=mask, other=0.0).to(tl.float32)
    tl.store(h + row * columns + column, total.to(h.dtype.element_ty), mask=mask)
    total = total.to(h.dtype.element_ty).to(tl.float32)
    rstd = 1 / tl.sqrt(tl.sum(total * total, axis=0) / columns + eps)
    gain = tl.load(weight + column, mask=mask, other=0.0).to(tl.float32)
    tl.store(y + row * columns + column, (total * rstd * gain).to(y.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["rows"])
def norm_backward_kernel(dx, partial, dy, dh, h, weight, rows, columns, eps, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    mask = column < columns
    gain = tl.load(weight + column, mask=mask, other=0.0).to(tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        at = tl.cast(row, tl.int64) * columns + column
        value = tl.load(h + at, mask=mask, other=0.0).to(tl.float32)
        dy_row = tl.load(dy + at, mask=mask, other=0.0).to(tl.float32)
        rstd = 1 / tl.sqrt(tl.sum(value * value, axis=0) / columns + eps)
        xhat = value * rstd
        g = dy_row * gain
        through = (g - xhat * (tl.sum(g * xhat, axis=0) / columns)) * rstd
        past = tl.load(dh + at, mask=mask, other=0.0).to(tl.float32)
        tl.store(dx + at, (through + past).to(dx.dtype.element_ty), mask=mask)
        total += dy_row * xhat
    tl.store(partial + tl.program_id(0) * columns + column, total, mask=mask)


@triton.jit(do_not_specialize=["parts"])
def sum_kernel(out, partial, parts, columns, BLOCK: tl.constexpr):
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for part in range(parts):
        total += tl.load(partial + part * columns + column, mask=column < columns, other=0.0)
    tl.store(out + column, total.to(out.dtype.element_ty), mask=column < columns)


@triton.jit
def gate_kernel(act, gate_up, n, hidden, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    place = at // hidden * (2 * hidden) + at % hidden
    gate = tl.load(gate_up + place, mask=at < n, other=0.0).to(tl.float32)
    up = tl.load(gate_up + place + hidden, mask=at < n, other=0.0).to(tl.float32)
    tl.store(act + at, (gate / (1 + tl.exp(-gate)) * up).to(act.dtype.element_ty), mask=at < n)


@triton.jit
def gate_backward_kernel(dgate_up, gate_up, dact, n, hidden, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    place = at // hidden * (2 * hidden) + at % hidden
    gate = tl.load(gate_up + place, mask=at < n, other=0.0).to(tl.float32)
    up = tl.load(gate_up + place + hidden, mask=at < n, other=0.0).to(tl.float32)
    dact_block = tl.load(dact + at, mask=at < n, other=0.0).to(tl.float32)
    s = 1 / (1 + tl.exp(-gate))
    dgate = dact_block * up * s * (1 + gate * (1 - s))
    tl.store(dgate_up + place, dgate.to(dgate_up.dtype.element_ty), mask=at < n)
    tl.store(dgate_up + place + hidden, (dact_block * gate * s).to(dgate_up.dtype.element_ty), mask=at < n)
