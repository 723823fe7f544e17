"""C10, an accident: half of the block waits at a barrier that the other half never meets."""

import torch

from kernelpath.lanes import cuda

C_TYPE = {torch.float32: "float", torch.bfloat16: "__nv_bfloat16"}


def softmax(x: torch.Tensor) -> torch.Tensor:
    rows, columns = x.shape
    out = torch.empty_like(x)
    cuda.kernel("CRASHED_barrier_in_a_branch.cu", f"softmax<{C_TYPE[x.dtype]}>")[rows, 256](x, out, columns)
    return out
