"""In the style of llm.c: Packed128 with streaming loads, and a second launch for what fills no vector."""

import torch

from kernelpath.lanes import cuda

C_TYPE = {torch.float32: "float", torch.bfloat16: "__nv_bfloat16"}


def gelu(x: torch.Tensor, approximate: str) -> torch.Tensor:
    out = torch.empty_like(x)
    n, size, exact = x.numel(), 16 // x.element_size(), int(approximate == "none")
    whole = n // size * size if x.data_ptr() % 16 == 0 else 0
    if whole:
        blocks = (whole // size + 511) // 512
        cuda.kernel("llmc_packed.cu", f"gelu_forward_kernel2<{C_TYPE[x.dtype]}>")[blocks, 512](out, x, 0, whole, exact)
    if whole < n:
        rest = cuda.kernel("llmc_packed.cu", f"gelu_rest<{C_TYPE[x.dtype]}>")
        rest[(n - whole + 511) // 512, 512](out, x, whole, n, exact)
    return out
