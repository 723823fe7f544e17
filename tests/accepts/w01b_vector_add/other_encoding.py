"""Files as an editor on Windows leaves them: CRLF, and in the .cu tabs and comments in Latin-1."""

import torch

from kernelpath.lanes import cuda


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    summe = torch.empty_like(x)
    blöcke = 1 + (x.numel() - 1) // 256
    cuda.kernel("other_encoding.cu", "addiere")[blöcke, 256](x, y, summe, x.numel())
    return summe
