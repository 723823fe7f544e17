"""As OpenMP's and ISPC's loops are peeled: the host computes from an address how many elements come before a line."""

import torch

from kernelpath.lanes import cuda

LINE = 128


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    head = min((-out.data_ptr() % LINE) // out.element_size(), n)
    blocks = max(-(-(n - head) // 256), 1)
    cuda.kernel("peeled_to_a_line.cu", "vector_add_peeled")[blocks, 256](x, y, out, n, head)
    return out
