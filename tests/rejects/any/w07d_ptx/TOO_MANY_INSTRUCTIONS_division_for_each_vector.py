"""An accident that costs instructions alone."""

import torch

from kernelpath.lanes import cuda


def hardswish(x: torch.Tensor) -> torch.Tensor:
    rows, columns = x.shape
    out = x.new_empty(rows, columns)
    places = (columns, x.stride(0), x.data_ptr() // 4, out.data_ptr() // 4)
    width = 4 if all(place % 4 == 0 for place in places) else 1
    blocks = min((out.numel() // width + 255) // 256, 108)
    kernel = cuda.kernel("TOO_MANY_INSTRUCTIONS_division_for_each_vector.cu", f"hardswish<{width}>")
    kernel[blocks, 256](x, out, rows, columns, x.stride(0))
    return out
