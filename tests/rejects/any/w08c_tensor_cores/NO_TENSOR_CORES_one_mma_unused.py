"""S1, one mma of zeros per warp beside multiply-adds by threads."""

import torch

from kernelpath.lanes import cuda

C_TYPE = {torch.bfloat16: "__nv_bfloat16", torch.float16: "__half"}


def matmul(a, b):
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n)
    kernel = cuda.kernel("NO_TENSOR_CORES_one_mma_unused.cu", f"matmul<{C_TYPE[a.dtype]}>")
    kernel[((n + 63) // 64, (m + 63) // 64), 256](a, b, out, m, n, k)
    return out
