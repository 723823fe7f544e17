"""Inductor's way: the matrix is a vector, the column is the index modulo its width, in 32 bits where they suffice."""

import torch
import triton
import triton.language as tl


@triton.jit
def triton_poi_fused_add_relu_0(in_ptr0, in_ptr1, out_ptr0, xnumel, ks0, WIDE: tl.constexpr, XBLOCK: tl.constexpr):
    xoffset = tl.program_id(0) * XBLOCK if not WIDE else tl.program_id(0).to(tl.int64) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x2 = xindex
    x0 = xindex % ks0
    tmp0 = tl.load(in_ptr0 + x2, xmask).to(tl.float32)
    tmp1 = tl.load(in_ptr1 + x0, xmask, eviction_policy="evict_last").to(tl.float32)
    tmp2 = tmp0 + tmp1
    tmp3 = tl.full([1], 0, tl.int32)
    tmp4 = tl.where((tmp2 != tmp2) | (tmp2 > tmp3), tmp2, tmp3)
    tl.store(out_ptr0 + x2, tmp4, xmask)


def bias_relu(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    xnumel = x.numel()
    wide = xnumel > 2**31 - 1024
    triton_poi_fused_add_relu_0[(triton.cdiv(xnumel, 1024),)](x, bias, out, xnumel, x.shape[1], wide, XBLOCK=1024)
    return out
