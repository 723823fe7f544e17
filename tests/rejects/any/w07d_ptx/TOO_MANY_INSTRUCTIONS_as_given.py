"""An accident: the line that raises deleted, and nothing else done."""

import torch

from kernelpath.lanes import cuda


def hardswish(x: torch.Tensor) -> torch.Tensor:
    rows, columns = x.shape
    out = x.new_empty(rows, columns)
    blocks = min((out.numel() + 255) // 256, 1024)
    kernel = cuda.kernel("TOO_MANY_INSTRUCTIONS_as_given.cu", "hardswish")
    kernel[blocks, 256](x, out, rows, columns, x.stride(0))
    return out
