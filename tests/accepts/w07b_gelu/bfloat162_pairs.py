"""Pairs of bfloat16 with the intrinsics of cuda_bf16.h, a sigmoid for tanh, and single elements for everything else."""

import torch

from kernelpath.lanes import cuda

C_TYPE = {torch.float32: "float", torch.bfloat16: "__nv_bfloat16"}


def gelu(x: torch.Tensor, approximate: str) -> torch.Tensor:
    out = torch.empty_like(x)
    n, by_tanh = x.numel(), int(approximate == "tanh")
    if x.dtype == torch.bfloat16 and x.data_ptr() % 4 == 0:
        cuda.kernel("bfloat162_pairs.cu", "pairs")[(n + 511) // 512, 256](x, out, n, by_tanh)
    else:
        kernel = cuda.kernel("bfloat162_pairs.cu", f"singles<{C_TYPE[x.dtype]}>")
        kernel[(n + 255) // 256, 256](x, out, n, by_tanh)
    return out
