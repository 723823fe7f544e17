"""A warp for each row, and whether 16 bytes serve it as an argument."""

import torch

from kernelpath.lanes import cuda


def hardswish(x: torch.Tensor) -> torch.Tensor:
    rows, columns = x.shape
    out = x.new_empty(rows, columns)
    wide = not any(place % 4 for place in (columns, x.stride(0), x.data_ptr() // 4, out.data_ptr() // 4))
    kernel = cuda.kernel("inline_assembly.cu", "hardswish")
    kernel[min(4096, (rows + 7) // 8), (32, 8)](x, out, rows, columns, x.stride(0), wide)
    return out
