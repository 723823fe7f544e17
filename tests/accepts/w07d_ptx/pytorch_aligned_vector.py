"""As aten/src/ATen/native/cuda/MemoryAccess.cuh deals out its vectors."""

import torch

from kernelpath.lanes import cuda


def hardswish(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    rows, columns = x.shape
    aligned = all(place % 16 == 0 for place in (x.data_ptr(), out.data_ptr(), 4 * columns, 4 * x.stride(0)))
    width = 4 if aligned else 1
    kernel = cuda.kernel("pytorch_aligned_vector.cu", f"hardswish<{width}, 4>")
    grid = ((columns + 128 * width - 1) // (128 * width), min((rows + 3) // 4, 65535))
    kernel[grid, 128](x, out, rows, columns, x.stride(0))
    return out
