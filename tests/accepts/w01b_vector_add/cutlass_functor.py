"""CUTLASS: arrays aligned by type, a Params struct, a kernel that is a struct with an operator()."""

import torch

from kernelpath.lanes import cuda

COMPILED = {}


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = x.new_empty(x.shape)
    alignment = 4 if not (x.data_ptr() % 16 or y.data_ptr() % 16) else 1
    if alignment not in COMPILED:
        COMPILED[alignment] = cuda.kernel("cutlass_functor.cu", f"device_kernel<kernel::VectorAdd<float, {alignment}>>")
    extent = x.numel()
    COMPILED[alignment][(extent + 511) // 512, 512 // alignment](x, y, out, extent)
    return out
