"""C3, an accident: exp overflows, and NaN passes where `diff > tolerance` is asked (SGEMM_CUDA PR 20)."""

import torch

from kernelpath.lanes import cuda

C_TYPE = {torch.float32: "float", torch.bfloat16: "__nv_bfloat16"}


def softmax(x: torch.Tensor) -> torch.Tensor:
    rows, columns = x.shape
    out = torch.empty_like(x)
    cuda.kernel("WRONG_VALUES_no_maximum_subtracted.cu", f"softmax<{C_TYPE[x.dtype]}>")[rows, 256](x, out, columns)
    return out
