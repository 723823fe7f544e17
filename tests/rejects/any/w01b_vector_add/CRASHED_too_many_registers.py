"""An accident: 64 values per thread in blocks of 1024 threads, which need more registers than an SM has."""

import torch

from kernelpath.lanes import cuda


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    blocks = (n + 65535) // 65536
    cuda.kernel("CRASHED_too_many_registers.cu", "vector_add")[blocks, 1024](x, y, out, n)
    return out
