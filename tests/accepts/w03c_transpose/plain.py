"""A padded tile of 32 by 32 in shared memory."""

import torch

from kernelpath.lanes import cuda

C_TYPE = {torch.float32: "float", torch.bfloat16: "__nv_bfloat16"}


def transpose(x: torch.Tensor) -> torch.Tensor:
    rows, columns = x.shape
    out = x.new_empty(columns, rows)
    grid = ((columns + 31) // 32, (rows + 31) // 32)
    kernel = cuda.kernel("plain.cu", f"transpose<{C_TYPE[x.dtype]}>")
    kernel[grid, (32, 32)](x, out, rows, columns)
    return out
