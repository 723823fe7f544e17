"""A block to a row and a loop over its columns, the strides in an array of ctypes."""

import ctypes

import torch

from kernelpath.lanes import cuda


def matrix_add(x, y):
    out = torch.empty(*x.shape, device=x.device)
    strides = (ctypes.c_int64 * 2)(x.stride(0), y.stride(0))
    cuda.kernel("block_a_row.cu", "add_rows")[x.size(0), 128](x, y, out, x.size(1), strides)
    return out
