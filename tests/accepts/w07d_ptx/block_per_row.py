"""The launch is one line; the kernel looks at the addresses."""

import torch

from kernelpath.lanes import cuda


def hardswish(x: torch.Tensor) -> torch.Tensor:
    rows, columns = x.shape
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    cuda.kernel("block_per_row.cu", "hardswish")[rows, 256](x, out, columns, x.stride(0))
    return out
