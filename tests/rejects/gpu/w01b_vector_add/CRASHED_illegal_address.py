"""H2, an accident: an address far outside of any tensor; what follows in the same process fails as well."""

import torch

from kernelpath.lanes import cuda


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    cuda.kernel("CRASHED_illegal_address.cu", "vector_add")[(n + 255) // 256, 256](x, y, out, n)
    return out
