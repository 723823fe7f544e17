"""Two kernels, and an if in Python."""

import torch

from kernelpath.lanes import cuda


def hardswish(x):
    rows, columns = x.shape
    out = torch.empty((rows, columns), device=x.device)
    wide = columns % 4 == 0 and x.stride(0) % 4 == 0 and x.data_ptr() % 16 == 0 and out.data_ptr() % 16 == 0
    width = 4 if wide else 1
    kernel = cuda.kernel("plain.cu", f"hardswish{width}")
    down = min(rows, 32768)
    grid = (-(-columns // (128 * width)), down, -(-rows // down))
    kernel[grid, 128](x, out, rows, columns, x.stride(0))
    return out
