"""A persistent kernel with heuristics: programs take every so many rows, the weights stay in registers."""

import torch
import triton
import triton.language as tl


@triton.heuristics(
    {
        "BLOCK": lambda args: triton.next_power_of_2(args["columns"]),
        "num_warps": lambda args: 16 if args["columns"] > 4096 else 4,
    }
)
@triton.jit
def rmsnorm_kernel(y, h, x, residual, weight, rows, columns, eps, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    mask = column < columns
    gain = tl.load(weight + column, mask=mask, other=0.0).to(tl.float32)
    for row in range(tl.program_id(0), rows, PROGRAMS):
        at = row * columns + column
        total = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
        total = (total + tl.load(residual + at, mask=mask, other=0.0).to(tl.float32)).to(h.dtype.element_ty)
        tl.store(h + at, total, mask=mask)
        wide = total.to(tl.float32)
        scale = 1.0 / tl.sqrt(tl.sum(wide * wide) / columns + eps)
        tl.store(y + at, wide * scale * gain, mask=mask)


def add_rmsnorm(x, residual, weight):
    rows, columns = x.shape
    y, h = torch.empty_like(x), torch.empty_like(x)
    programs = min(rows, torch.cuda.get_device_properties(x.device).multi_processor_count)
    rmsnorm_kernel[(programs,)](y, h, x, residual, weight, rows, columns, eps=1e-6, PROGRAMS=programs)
    return y, h
