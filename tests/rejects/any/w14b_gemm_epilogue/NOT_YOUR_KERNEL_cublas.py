"""S1: a library multiplies, and a kernel of one's own does the rest."""

import torch
import triton
import triton.language as tl


@triton.jit
def epilogue(out, product, bias, scale, residual, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    at, inside = row * n + columns, columns < n
    total = tl.load(product + at, mask=inside) + tl.load(bias + columns, mask=inside).to(tl.float32)
    total *= tl.sigmoid(1.5957691216057308 * (total + 0.044715 * total * total * total)) * tl.load(scale + row)
    total += tl.load(residual + at, mask=inside).to(tl.float32)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=inside)


def gemm_epilogue(a, b, bias, scale, residual):
    m, n = residual.shape
    out = torch.empty_like(residual)
    epilogue[m, triton.cdiv(n, 1024)](out, torch.mm(a.float(), b.float()), bias, scale, residual, n, 1024)
    return out
