"""An accident: 4 x 4 outputs per thread, read one by one, keep shared memory busy twice as long as the arithmetic."""

import torch

from kernelpath.lanes import cuda


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n)
    kernel = cuda.kernel("TOO_MUCH_TRAFFIC_four_by_four_outputs.cu", "matmul")
    kernel[((n + 63) // 64, (m + 63) // 64), 256](a, b, out, m, n, k)
    return out
