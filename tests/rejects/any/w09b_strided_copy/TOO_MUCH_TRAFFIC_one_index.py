"""An accident: one block of indices along the output, from which divisions find the place in x. Stores are coalesced,
and the loads of a transpose are not."""

import torch
import triton
import triton.language as tl


@triton.jit
def copy_elements(out, x, n, rows, columns, x_plane, x_row, x_column, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    column, row, plane = index % columns, index // columns % rows, index // columns // rows
    value = tl.load(x + plane * x_plane + row * x_row + column * x_column, mask=index < n)
    tl.store(out + index, value, mask=index < n)


def strided_copy(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n = x.numel()
    copy_elements[triton.cdiv(n, 1024),](out, x, n, x.size(1), x.size(2), *x.stride(), 1024)
    return out
