"""As a learner writes it first: one element per thread, erff and tanhf."""

import torch

from kernelpath.lanes import cuda

C_TYPE = {torch.float32: "float", torch.bfloat16: "__nv_bfloat16"}


def gelu(x: torch.Tensor, approximate: str) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    kernel = cuda.kernel("plain.cu", f"gelu<{C_TYPE[x.dtype]}, {'true' if approximate == 'tanh' else 'false'}>")
    kernel[(n + 255) // 256, 256](x, out, n)
    return out
