"""H2, an accident: the launch forgets the size."""

import torch

from kernelpath.lanes import cuda


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    cuda.kernel("CRASHED_wrong_number_of_arguments.cu", "vector_add")[(x.numel() + 255) // 256, 256](x, y, out)
    return out
