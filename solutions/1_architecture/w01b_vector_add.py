"""Vector addition: out = x + y for float32 vectors of any length."""

import torch

from kernelpath.lanes import cuda

THREADS = 256
BATCH = 2


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """x, y: float32, one dimension, contiguous, any length and alignment. Returns a new tensor."""
    out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    aligned = all(tensor.data_ptr() % 16 == 0 for tensor in (x, y, out))
    vector, width = ("float4", 4) if aligned else ("float", 1)
    per_block = THREADS * BATCH * width
    kernel = cuda.kernel("w01b_vector_add.cu", f"vector_add<{vector}, {BATCH}>")
    kernel[(n + per_block - 1) // per_block, THREADS](x, y, out, n)
    return out
