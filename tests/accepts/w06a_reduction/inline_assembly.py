"""Loads by inline PTX that leave nothing in L1, and a last block of which one warp finishes."""

import torch

from kernelpath.lanes import cuda


def vector_sum(x):
    y = torch.empty(1, dtype=torch.float32, device=x.device)
    n = x.numel()
    cuda.kernel("inline_assembly.cu", "sum_of")[max(1, min(864, n // 1024)), 256](x, y, n, x.data_ptr() % 16 == 0)
    return y
