"""What torch.compile generates for rows that fit into registers: a persistent reduction with R0_BLOCK and xindex."""

import torch
import triton
import triton.language as tl


@triton.jit
def triton_per_fused_add_rms_norm_0(
    in_ptr0, in_ptr1, in_ptr2, out_ptr0, out_ptr2, xnumel, r0_numel, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr
):
    xoffset = tl.program_id(0).to(tl.int64) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    r0_index = tl.arange(0, R0_BLOCK)[None, :]
    r0_mask = r0_index < r0_numel
    r0_1 = r0_index
    x0 = xindex
    tmp0 = tl.load(in_ptr0 + (r0_1 + r0_numel * x0), r0_mask & xmask, other=0.0).to(tl.float32)
    tmp1 = tl.load(in_ptr1 + (r0_1 + r0_numel * x0), r0_mask & xmask, other=0.0).to(tl.float32)
    tmp9 = tl.load(in_ptr2 + (r0_1), r0_mask, eviction_policy="evict_last", other=0.0).to(tl.float32)
    tmp2 = (tmp0 + tmp1).to(out_ptr0.dtype.element_ty)
    tmp3 = tmp2.to(tl.float32)
    tmp4 = tmp3 * tmp3
    tmp5 = tl.broadcast_to(tmp4, [XBLOCK, R0_BLOCK])
    tmp7 = tl.where(r0_mask & xmask, tmp5, 0)
    tmp8 = tl.sum(tmp7, 1)[:, None].to(tl.float32)
    tmp10 = tmp3 * tl.rsqrt(tmp8 / r0_numel + 1e-06) * tmp9
    tl.store(out_ptr0 + (r0_1 + r0_numel * x0), tmp2, r0_mask & xmask)
    tl.store(out_ptr2 + (r0_1 + r0_numel * x0), tmp10, r0_mask & xmask)


def add_rmsnorm(arg0_1, arg1_1, arg2_1):
    s0, s1 = arg0_1.size()
    buf0 = torch.empty_strided((s0, s1), (s1, 1), dtype=arg0_1.dtype, device=arg0_1.device)
    buf2 = torch.empty_strided((s0, s1), (s1, 1), dtype=arg0_1.dtype, device=arg0_1.device)
    r0_block = triton.next_power_of_2(s1)
    triton_per_fused_add_rms_norm_0[(s0,)](
        arg0_1, arg1_1, arg2_1, buf0, buf2, s0, s1, 1, r0_block, num_warps=min(16, max(2, r0_block // 128))
    )
    return buf2, buf0
