"""C7: the sum is kept in bfloat16, which stops counting at 256."""

import torch

from kernelpath.lanes import cuda

C_TYPE = {torch.float32: "float", torch.bfloat16: "__nv_bfloat16"}


def softmax(x: torch.Tensor) -> torch.Tensor:
    rows, columns = x.shape
    out = torch.empty_like(x)
    cuda.kernel("WRONG_VALUES_sums_in_bfloat16.cu", f"softmax<{C_TYPE[x.dtype]}>")[rows, 256](x, out, columns)
    return out
