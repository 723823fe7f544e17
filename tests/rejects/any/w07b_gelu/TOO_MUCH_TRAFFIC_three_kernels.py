"""An accident: the formula as three kernels, with float32 values between them in memory."""

import torch

from kernelpath.lanes import cuda

C_TYPE = {torch.float32: "float", torch.bfloat16: "__nv_bfloat16"}


def gelu(x: torch.Tensor, approximate: str) -> torch.Tensor:
    out, z = torch.empty_like(x), torch.empty_like(x, dtype=torch.float32)
    n, by_tanh = x.numel(), int(approximate == "tanh")
    blocks, file = (n + 255) // 256, "TOO_MUCH_TRAFFIC_three_kernels.cu"
    cuda.kernel(file, f"inner<{C_TYPE[x.dtype]}>")[blocks, 256](x, z, n, by_tanh)
    cuda.kernel(file, "outer")[blocks, 256](z, n, by_tanh)
    cuda.kernel(file, f"product<{C_TYPE[x.dtype]}>")[blocks, 256](x, z, out, n)
    return out
