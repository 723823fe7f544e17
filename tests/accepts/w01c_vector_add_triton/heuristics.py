"""FlagGems' and Inductor's way: heuristics choose the block and drop the mask where every block is full."""

import torch
import triton
import triton.language as tl


@triton.heuristics({"BLOCK": lambda args: min(1024, max(128, triton.next_power_of_2(args["n"])))})
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0, "num_warps": lambda args: 4})
@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(out + offsets, tl.load(x + offsets) + tl.load(y + offsets))
    else:
        mask = offsets < n
        tl.store(out + offsets, tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask), mask=mask)


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = x.new_empty(x.shape)
    grid = lambda args: (triton.cdiv(args["n"], args["BLOCK"]),)  # noqa: E731
    add_kernel[grid](x, y, out, n=x.numel())
    return out
