"""A tile of cooperative groups to a row, which a generic lambda walks."""

import torch

from kernelpath.lanes import cuda

WARPS = 4


def matrix_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    (rows, columns), out = x.shape, x.new_empty(x.shape)
    kernel = cuda.kernel("warps_and_lambda.cu", "ours::matrix_add")
    grid = min(-(-rows // WARPS), 2048)
    kernel[grid, 32 * WARPS](x, y, out, rows, columns, x.stride(0), y.stride(0), out.stride(0))
    return out
