"""An inference engine's way: an operator that writes into tensors given to it (mutates_args), and a fake of it."""

import torch
import triton
import triton.language as tl


@triton.jit
def rms_kernel(x, residual, weight, y, h, columns, inverse, eps, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * columns + tl.arange(0, BLOCK)
    mask = tl.arange(0, BLOCK) < columns
    total = tl.load(x + at, mask, other=0.0).to(tl.float32) + tl.load(residual + at, mask, other=0.0).to(tl.float32)
    total = total.to(h.dtype.element_ty)
    tl.store(h + at, total, mask)
    wide = total.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, axis=0) * inverse + eps)
    gain = tl.load(weight + tl.arange(0, BLOCK), mask).to(tl.float32)
    tl.store(y + at, wide * scale * gain, mask)


@torch.library.custom_op("engine::add_rms_norm", mutates_args=("y", "h"))
def add_rms_norm(
    y: torch.Tensor, h: torch.Tensor, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> None:
    rows, columns = x.shape
    block = triton.next_power_of_2(columns)
    rms_kernel[(rows,)](x, residual, weight, y, h, columns, 1.0 / columns, eps, BLOCK=block, num_warps=8)


@add_rms_norm.register_fake
def _(y, h, x, residual, weight, eps):
    return None


def add_rmsnorm(x, residual, weight):
    y, h = torch.empty_like(x), torch.empty_like(x)
    torch.ops.engine.add_rms_norm(y, h, x, residual, weight, 1e-6)
    return y, h
