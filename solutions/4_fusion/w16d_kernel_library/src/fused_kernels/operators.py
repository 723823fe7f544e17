"""The operators: argument checks, schemas, fake implementations and gradients.

The functions that users call check their arguments, so that a wrong argument is refused with this package's message
before anything is allocated. Each function calls an operator of torch.library, which autograd and torch.compile
support.
"""

import torch
import triton

from fused_kernels import kernels

DTYPES = (torch.bfloat16, torch.float32)
MOST_COLUMNS = 8192


def add_rmsnorm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    """(y, h) with h = x + residual, rounded to the dtype, and y = h * weight / sqrt(mean of h^2 over the row + eps).

    x, residual: (rows, columns), bfloat16 or float32, of any strides; 1 to 8192 columns. weight: (columns,). All of one
    dtype, on one device. The arithmetic is float32. Raises TypeError for another type or dtype, and ValueError for
    another shape, device, or an eps that is not positive; the message begins with the argument's name.
    """
    matrix("x", x)
    like("residual", residual, x, x.shape)
    like("weight", weight, x, x.shape[1:])
    if not 1 <= x.shape[1] <= MOST_COLUMNS:
        raise ValueError(f"x has {x.shape[1]} columns; there may be 1 to {MOST_COLUMNS}")
    if not eps > 0:
        raise ValueError(f"eps is {eps}; it has to be positive")
    y, h, _ = torch.ops.fused_kernels.add_rmsnorm(x, residual, weight, eps)
    return y, h


def swiglu(gate_up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up of shape (rows, hidden), for gate and up side by side: (rows, 2 * hidden).

    bfloat16 or float32, of any strides. The arithmetic is float32. Raises TypeError for another type or dtype, and
    ValueError for another shape; the message begins with the argument's name.
    """
    matrix("gate_up", gate_up)
    if gate_up.shape[1] % 2:
        raise ValueError(f"gate_up has {gate_up.shape[1]} columns; gate and up need as many each")
    return torch.ops.fused_kernels.swiglu(gate_up)


def matrix(name: str, tensor: torch.Tensor) -> None:
    """Raise unless the tensor is a matrix with a dtype that the kernels support."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} is a {type(tensor).__name__}, not a torch.Tensor")
    if tensor.dtype not in DTYPES:
        raise TypeError(f"{name} has dtype {tensor.dtype}; bfloat16 and float32 are supported")
    if tensor.ndim != 2:
        raise ValueError(f"{name} has {tensor.ndim} dimensions; it has to be a matrix")


def like(name: str, tensor: torch.Tensor, x: torch.Tensor, shape: torch.Size) -> None:
    """Raise unless the tensor has this shape, and the dtype and device of x."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} is a {type(tensor).__name__}, not a torch.Tensor")
    if tensor.dtype != x.dtype:
        raise TypeError(f"{name} has dtype {tensor.dtype}, and x {x.dtype}")
    if tensor.shape != shape:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}; with this x it has to be {tuple(shape)}")
    if tensor.device != x.device:
        raise ValueError(f"{name} is on {tensor.device}, and x on {x.device}")


@torch.library.custom_op("fused_kernels::add_rmsnorm", mutates_args=())
def _add_rmsnorm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return y, h and the rstd of each row, which the gradient needs."""
    x, residual, weight = x.contiguous(), residual.contiguous(), weight.contiguous()
    y, h = torch.empty_like(x), torch.empty_like(x)
    rows, columns = x.shape
    rstd = torch.empty(rows, dtype=torch.float32, device=x.device)
    block, tile_m = tile(columns)
    if rows:
        with torch.cuda.device_of(x):  # Triton launches on the current device, which need not be that of x
            kernels.add_rmsnorm_forward[triton.cdiv(rows, tile_m),](
                y, h, rstd, x, residual, weight, rows, columns, eps, tile_m, block, num_warps=4 if block <= 4096 else 16
            )
    return y, h, rstd


@torch.library.custom_op("fused_kernels::add_rmsnorm_backward", mutates_args=())
def _add_rmsnorm_backward(
    dy: torch.Tensor, dh: torch.Tensor, h: torch.Tensor, weight: torch.Tensor, rstd: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return dx, which is also the gradient of residual, and dweight."""
    dy, dh, weight = dy.contiguous(), dh.contiguous(), weight.contiguous()
    rows, columns = h.shape
    dx, dweight = torch.empty_like(h), torch.empty_like(weight)
    if not rows:
        return dx, dweight.zero_()
    block, tile_m = tile(columns)
    warps = max(4, block // 512)
    stripes = min(triton.cdiv(rows, tile_m), multiprocessors(h.device) * (16 // warps))
    partial = torch.empty(stripes, columns, dtype=torch.float32, device=h.device)
    with torch.cuda.device_of(h):
        kernels.add_rmsnorm_backward[stripes,](
            dx, partial, dy, dh, h, weight, rstd, rows, columns, tile_m, block, num_warps=warps
        )
        kernels.sum_stripes[triton.cdiv(columns, 64),](dweight, partial, stripes, columns, 32, 64)
    return dx, dweight


@torch.library.custom_op("fused_kernels::swiglu", mutates_args=())
def _swiglu(gate_up: torch.Tensor) -> torch.Tensor:
    gate_up = gate_up.contiguous()
    rows, hidden = gate_up.shape[0], gate_up.shape[1] // 2
    act = gate_up.new_empty(rows, hidden)
    block = min(1024, triton.next_power_of_2(max(1, hidden)))
    if act.numel():
        with torch.cuda.device_of(gate_up):
            kernels.swiglu_forward[rows, triton.cdiv(hidden, block)](act, gate_up, hidden, block)
    return act


@torch.library.custom_op("fused_kernels::swiglu_backward", mutates_args=())
def _swiglu_backward(gate_up: torch.Tensor, dact: torch.Tensor) -> torch.Tensor:
    gate_up, dact = gate_up.contiguous(), dact.contiguous()
    dgate_up = torch.empty_like(gate_up)
    rows, hidden = dact.shape
    block = min(1024, triton.next_power_of_2(max(1, hidden)))
    if dact.numel():
        with torch.cuda.device_of(gate_up):
            kernels.swiglu_backward[rows, triton.cdiv(hidden, block)](dgate_up, gate_up, dact, hidden, block)
    return dgate_up


@_add_rmsnorm.register_fake
def _(x, residual, weight, eps):
    y = x.new_empty(x.shape)
    return y, torch.empty_like(y), x.new_empty(x.shape[:1], dtype=torch.float32)


@_add_rmsnorm_backward.register_fake
def _(dy, dh, h, weight, rstd):
    return torch.empty_like(h), weight.new_empty(weight.shape)


@_swiglu.register_fake
def _(gate_up):
    return gate_up.new_empty(gate_up.shape[0], gate_up.shape[1] // 2)


@_swiglu_backward.register_fake
def _(gate_up, dact):
    return gate_up.new_empty(gate_up.shape)


def _keep_norm(ctx, inputs, output) -> None:
    _, h, rstd = output
    ctx.mark_non_differentiable(rstd)
    ctx.save_for_backward(h, inputs[2], rstd)


def _norm_gradients(ctx, dy, dh, _):
    h, weight, rstd = ctx.saved_tensors
    dx, dweight = torch.ops.fused_kernels.add_rmsnorm_backward(dy, dh, h, weight, rstd)
    return dx, dx, dweight, None


def _keep_gates(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs)


def _gate_gradients(ctx, dact):
    return torch.ops.fused_kernels.swiglu_backward(*ctx.saved_tensors, dact)


_add_rmsnorm.register_autograd(_norm_gradients, setup_context=_keep_norm)
_swiglu.register_autograd(_gate_gradients, setup_context=_keep_gates)


def tile(columns: int) -> tuple[int, int]:
    """Return the size of a block that holds a row, and the number of rows per program."""
    block = triton.next_power_of_2(columns)
    return block, max(1, 2048 // block)


def multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device if device.type == "cuda" else None).multi_processor_count
