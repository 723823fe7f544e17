"""A block a row, which it keeps in shared memory as far as that goes; maximum and sum by tree reductions."""

import torch

from kernelpath.lanes import cuda

C_TYPE = {torch.float32: "float", torch.bfloat16: "__nv_bfloat16"}


def softmax(x: torch.Tensor) -> torch.Tensor:
    rows, columns = x.shape
    out = torch.empty_like(x)
    cuda.kernel("plain.cu", f"softmax<{C_TYPE[x.dtype]}>")[rows, 256](x, out, columns)
    return out
