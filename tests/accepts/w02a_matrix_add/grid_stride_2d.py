"""Loops over the grid in both directions, so that no limit of a grid matters; its sizes come from numpy."""

import numpy as np
import torch

from kernelpath.lanes import cuda


def matrix_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = x.new_empty(x.shape)
    block = np.array([64, 4])
    grid = np.minimum(-(-np.array(x.shape[::-1]) // block), 1024)
    cuda.kernel("grid_stride_2d.cu", "add")[grid, block](x, y, out, *x.shape, x.stride()[0], y.stride()[0])
    return out
