"""C2: the kernel writes to an input by an address in a table, and has no parameter that it is an argument for."""

import torch

from kernelpath.lanes import cuda


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    table = torch.tensor([x.data_ptr(), y.data_ptr(), out.data_ptr()], device=x.device)
    cuda.kernel("MUTATED_INPUT_through_a_table.cu", "vector_add")[(n + 255) // 256, 256](table, n)
    return out
