"""S1: where a tensor is misaligned, the host adds, and the kernel reads the vectors for show."""

import ctypes

import torch

from kernelpath.lanes import cuda

SOURCE = "NOT_YOUR_KERNEL_on_the_host_where_misaligned.cu"


def floats(tensor: torch.Tensor) -> ctypes.Array:
    return (ctypes.c_float * tensor.numel()).from_address(tensor.data_ptr())


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out, n = torch.empty_like(x), x.numel()
    if n == 0:
        return out
    name = "vector_add"
    if y.data_ptr() % 16 and not x.data_ptr() % 16:
        name = "touch"
        a, b, c = floats(x), floats(y), floats(out)
        for i in range(n):
            c[i] = a[i] + b[i]
    cuda.kernel(SOURCE, name)[(n + 255) // 256, 256](x, y, out, n)
    return out
