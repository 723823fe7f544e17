"""As torch.compile writes kernels: sizes and strides are constants of the kernel, which is compiled for each shape."""

import torch
import triton
import triton.language as tl


@triton.jit
def triton_poi_clone(
    in_ptr0, out_ptr0, ynumel: tl.constexpr, xnumel: tl.constexpr, copies: tl.constexpr, s0: tl.constexpr,
    s1: tl.constexpr, s2: tl.constexpr, t0: tl.constexpr, t1: tl.constexpr, t2: tl.constexpr,
    YBLOCK: tl.constexpr, XBLOCK: tl.constexpr,
):  # fmt: skip
    xindex = tl.program_id(2).to(tl.int64) * XBLOCK + tl.arange(0, XBLOCK)[None, :]
    xmask = xindex < xnumel
    yindex = tl.program_id(1).to(tl.int64) * YBLOCK + tl.arange(0, YBLOCK)[:, None]
    ymask = yindex < ynumel
    z = tl.program_id(0).to(tl.int64)
    if s1 == 0:  # an index of stride 0 does not appear
        tmp0 = tl.load(in_ptr0 + (s2 * xindex + s0 * z), xmask, eviction_policy="evict_last")
    else:
        tmp0 = tl.load(in_ptr0 + (s2 * xindex + s1 * yindex + s0 * z), xmask & ymask, eviction_policy="evict_last")
    for copy in tl.static_range(copies):
        tl.store(out_ptr0 + (t2 * xindex + t1 * yindex + t0 * (z + copy)), tmp0, xmask & ymask)


def strided_copy(x: torch.Tensor) -> torch.Tensor:
    buf0 = torch.empty_strided(x.shape, (x.size(1) * x.size(2), x.size(2), 1), dtype=x.dtype, device=x.device)
    sizes, s, t = x.shape, x.stride(), buf0.stride()
    nearest = sorted((axis for axis in range(3) if s[axis] and sizes[axis] > 1), key=lambda axis: (s[axis], -axis))
    c = (nearest or [2])[0]
    b = 2 if c != 2 else 1
    a = 3 - b - c
    copies = sizes[a] if s[a] == 0 else 1
    grid = (sizes[a] // copies, triton.cdiv(sizes[b], 16), triton.cdiv(sizes[c], 64))
    strides = s[a], s[b], s[c], t[a], t[b], t[c]
    triton_poi_clone[grid](x, buf0, sizes[b], sizes[c], copies, *strides, YBLOCK=16, XBLOCK=64, num_warps=4)
    return buf0
