"""Sixteen bytes an access where the row allows it: packs of bfloat16 that are unpacked in registers."""

import torch

from kernelpath.lanes import cuda


def softmax(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(*x.shape, dtype=x.dtype, device=x.device)
    rows, columns = x.shape
    size = x.element_size()
    width = 16 // size
    if columns % width or x.data_ptr() % 16:
        width = 1
    of = "float" if size == 4 else "__nv_bfloat16"
    kept = min(columns // width, 3072)
    kernel = cuda.kernel("packed_loads.cu", f"softmax<{of}, {width}>")
    kernel[rows, 128, kept * width * size](x, out, columns // width, kept)
    return out
