"""PyTorch's tensor accessors: strides in a struct by value, indices in brackets."""

import ctypes

import torch

from kernelpath.lanes import cuda


def packed(tensor: torch.Tensor) -> ctypes.Array:
    return (ctypes.c_longlong * 4)(*tensor.shape, *tensor.stride())


def transpose(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.shape[::-1], dtype=x.dtype, device=x.device)
    scalar_t = {torch.float32: "float", torch.bfloat16: "at::BFloat16"}[x.dtype]
    blocks = ((x.shape[1] + 31) // 32, (x.shape[0] + 31) // 32)
    kernel = cuda.kernel("accessors.cu", f"at::native::transpose_kernel<{scalar_t}>")
    kernel[blocks, (32, 8)](x, packed(x), out, packed(out))
    return out
