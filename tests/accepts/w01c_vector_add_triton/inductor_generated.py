"""What torch.compile generates: xnumel, XBLOCK, xindex, and temporaries with numbers."""

import torch
import triton
import triton.language as tl


@triton.jit
def triton_poi_fused_add_0(in_ptr0, in_ptr1, out_ptr0, xnumel, XBLOCK: tl.constexpr):
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x0 = xindex
    tmp0 = tl.load(in_ptr0 + (x0), xmask, eviction_policy="evict_last")
    tmp1 = tl.load(in_ptr1 + (x0), xmask, eviction_policy="evict_first")
    tmp2 = tmp0 + tmp1
    tl.store(out_ptr0 + (x0), tmp2, xmask)


def vector_add(arg0_1, arg1_1):
    (s0,) = arg0_1.size()
    buf0 = torch.empty_strided((s0,), (1,), device=arg0_1.device, dtype=torch.float32)
    triton_poi_fused_add_0[(triton.cdiv(s0, 1024),)](arg0_1, arg1_1, buf0, s0, XBLOCK=1024, num_warps=4, num_stages=1)
    del arg0_1, arg1_1
    return buf0
