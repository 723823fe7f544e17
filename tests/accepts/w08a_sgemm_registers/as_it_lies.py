"""A tile of a that is kept by rows and read along k: four steps in a load."""

import torch

from kernelpath.lanes import cuda

SGEMM = cuda.kernel("as_it_lies.cu", "sgemm_rows")


def matmul(a, b):
    m, k = a.size()
    n = b.size(1)
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    SGEMM[(-(-n // 128), -(-m // 128)), (256, 1, 1)](a, b, c, m, n, k)
    return c
