import torch
import triton
import triton.language as tl
from torch.library import triton_op, wrap_triton


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


def block(columns):
    return triton.next_power_of_2(columns)


def warps(columns):
    return max(1, min(8, columns // 256))


def check(x, residual, weight, eps):
    for name, tensor, axes in (("x", x, 2), ("residual", residual, 2), ("weight", weight, 1)):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} must be a tensor")
        if tensor.dtype not in (torch.float32, torch.bfloat16) or tensor.dtype != x.dtype:
            raise TypeError(f"{name}: {tensor.dtype} is not supported here")
        if tensor.dim() != axes:
            raise ValueError(f"{name} must have {axes} dimensions")
        if tensor.device != x.device:
            raise ValueError(f"{name} must be on the device of x")
    if not 0 < x.shape[1] <= 8192:
        raise ValueError("x must have 1 to 8192 columns")
    if residual.shape != x.shape:
        raise ValueError("residual must have the shape of x")
    if weight.shape[0] != x.shape[1]:
        raise ValueError("weight must have an element for each column of x")
    if eps <= 0:
        raise ValueError("eps must be positive")


def check_gates(gate_up):
    if not isinstance(gate_up, torch.Tensor) or gate_up.dtype not in (torch.float32, torch.bfloat16):
        raise TypeError("gate_up must be a bfloat16 or float32 tensor")
    if gate_up.dim() != 2 or gate_up.shape[1] % 2:
        raise ValueError("gate_up must be a matrix with an even number of columns")


@triton_op("fused_kernels::norm", mutates_args={})
def norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    x, residual, weight = x.contiguous(), residual.contiguous(), weight.contiguous()
    y, h = torch.empty_like(x), torch.empty_like(x)
    if x.numel():
        wrap_triton(norm_kernel)[(x.shape[0],)](
            y, h, x, residual, weight, x.shape[1], eps, block(x.shape[1]), num_warps=warps(x.shape[1])
        )
    return y, h


@triton_op("fused_kernels::norm_backward", mutates_args={})
def norm_backward(
    dy: torch.Tensor, dh: torch.Tensor, h: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    dy, dh, weight = dy.contiguous(), dh.contiguous(), weight.contiguous()
    rows, columns = h.shape
    dx, dweight = torch.empty_like(h), torch.zeros_like(weight)
    if rows:
        parts = min(rows, 512)
        partial = torch.empty(parts, columns, dtype=torch.float32, device=h.device)
        wrap_triton(norm_backward_kernel)[(parts,)](
            dx, partial, dy, dh, h, weight, rows, columns, eps, block(columns), num_warps=warps(columns)
        )
        wrap_triton(sum_kernel)[(triton.cdiv(columns, 64),)](dweight, partial, parts, columns, 64, num_warps=2)
    return dx, dweight


@triton_op("fused_kernels::gate", mutates_args={})
def gate(gate_up: torch.Tensor) -> torch.Tensor:
    gate_up = gate_up.contiguous()
    act = gate_up.new_empty(gate_up.shape[0], gate_up.shape[1] // 2)
    if act.numel():
        wrap_triton(gate_kernel)[(triton.cdiv(act.numel(), 1024),)](act, gate_up, act.numel(), act.shape[1], 1024)
    return act


@triton_op("fused_kernels::gate_backward", mutates_args={})
def gate_backward(gate_up: torch.Tensor, dact: torch.Tensor) -> torch.Tensor:
    gate_up, dact = gate_up.contiguous(), dact.contiguous()
    dgate_up = torch.empty_like(gate_up)
    if dact.numel():
        grid = (triton.cdiv(dact.numel(), 1024),)
        wrap_triton(gate_backward_kernel)[grid](dgate_up, gate_up, dact, dact.numel(), dact.shape[1], 1024)
    return dgate_up


def keep_norm(ctx, inputs, output):
    ctx.save_for_backward(output[1], inputs[2])
    ctx.eps = inputs[3]


def norm_gradients(ctx, dy, dh):
    dx, dweight = torch.ops.fused_kernels.norm_backward(dy, dh, *ctx.saved_tensors, ctx.eps)
    return dx, dx, dweight, None


def keep_gates(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def gate_gradients(ctx, dact):
    return torch.ops.fused_kernels.gate_backward(*ctx.saved_tensors, dact)


torch.library.register_autograd("fused_kernels::norm", norm_gradients, setup_context=keep_norm)
torch.library.register_autograd("fused_kernels::gate", gate_gradients, setup_context=keep_gates)


def add_rmsnorm(x, residual, weight, eps=1e-6):
    check(x, residual, weight, eps)
    return torch.ops.fused_kernels.norm(x, residual, weight, eps)


def swiglu(gate_up):
    check_gates(gate_up)
    return torch.ops.fused_kernels.gate(gate_up)
