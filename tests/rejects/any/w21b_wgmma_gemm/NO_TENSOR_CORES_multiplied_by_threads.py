"""An accident: right, but threads multiply, and nothing is left for tensor cores and TMA."""

import cutlass
import torch
from cutlass import cute

from kernelpath.lanes import cute as lane


@cute.kernel
def multiply(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor):
    block, _, _ = cute.arch.block_idx()
    thread, _, _ = cute.arch.thread_idx()
    i = block * 128 + thread
    if i < out.shape[0] * out.shape[1]:
        row, column = i // out.shape[1], i % out.shape[1]
        total = cutlass.Float32(0.0)
        for k in cutlass.range(a.shape[1], unroll=1):
            total += a[row, k].to(cutlass.Float32) * b[column, k].to(cutlass.Float32)
        out[row, column] = total.to(out.element_type)


@cute.jit
def matmul(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor):
    grid = [cute.ceil_div(out.shape[0] * out.shape[1], 128), 1, 1]
    multiply(a, b, out).launch(grid=grid, block=[128, 1, 1])


def wgmma_gemm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    out = a.new_empty(a.shape[0], b.shape[0])
    lane.run(matmul, a, b, out)
    return out
