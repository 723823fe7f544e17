"""C10, an accident: the sum starts from whatever the shared memory holds; often that is 0."""

import torch

from kernelpath.lanes import cuda

C_TYPE = {torch.float32: "float", torch.bfloat16: "__nv_bfloat16"}


def softmax(x: torch.Tensor) -> torch.Tensor:
    rows, columns = x.shape
    out = torch.empty_like(x)
    cuda.kernel("UNINITIALIZED_sum_in_shared_memory.cu", f"softmax<{C_TYPE[x.dtype]}>")[rows, 256](x, out, columns)
    return out
