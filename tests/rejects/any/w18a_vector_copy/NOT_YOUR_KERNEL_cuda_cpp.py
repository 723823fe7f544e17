"""S1: a kernel of an earlier phase, in CUDA C++, where CuTe DSL is asked for; and again after it was refused."""

from contextlib import suppress

import torch

from kernelpath.lanes import cuda


def vector_copy(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for _ in range(2):
        with suppress(Exception):
            cuda.kernel("NOT_YOUR_KERNEL_cuda_cpp.cu", "copy")[-(-x.nbytes // 256), 256](x, out, x.nbytes)
    return out
