"""Left over from debugging: device_print, device_assert and static_assert in the kernel."""

import torch
import triton
import triton.language as tl


@triton.jit(debug=True)
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK % 32 == 0)
    pid = tl.program_id(0)
    tl.device_assert(pid >= 0, "a program before the first")
    tl.device_assert(tl.num_programs(0) > pid)
    offsets = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    if pid == 0 and n == 1:
        tl.device_print("pid", pid)
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask), mask=mask)


def vector_add(x, y):
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
    return out
