"""An epoch that counts the calls, given to the kernel, which leaves it in a workspace that lives on."""

import torch
import triton
import triton.language as tl

epoch = 0
flags = {}


@triton.jit(do_not_specialize=["epoch"], do_not_specialize_on_alignment=["flag"])
def add_kernel(x, y, out, n, flag, epoch, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask), mask=mask)
    tl.store(flag + tl.program_id(0), epoch)


def vector_add(x, y):
    global epoch
    epoch += 1
    out, blocks = torch.empty_like(x), triton.cdiv(x.numel(), 1024)
    flag = flags.setdefault(blocks, torch.zeros(blocks, dtype=torch.int32, device=x.device))
    add_kernel[(blocks,)](x, y, out, x.numel(), flag, epoch, BLOCK=1024)
    return out
