"""S2: the kernel includes the solution, which the compiler does not find next to the copy that is graded."""

import torch

from kernelpath.lanes import cuda


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    cuda.kernel("COMPILE_ERROR_includes_the_solution.cu", "vector_add<float>")[(n + 255) // 256, 256](x, y, out, n)
    return out
