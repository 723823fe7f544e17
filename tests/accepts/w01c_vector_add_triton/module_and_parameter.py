"""A torch.nn.Module whose forward launches the kernel, kept as a static method of a class."""

import torch
import triton
import triton.language as tl


class Adder(torch.nn.Module):
    @staticmethod
    @triton.jit
    def kernel(x, y, out, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        tl.store(out + offsets, tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask), mask=mask)

    def __init__(self, block: int = 1024) -> None:
        super().__init__()
        self.block = block

    @torch.no_grad()
    def forward(self, x, y):
        out = torch.empty_like(x)
        self.kernel[(triton.cdiv(x.numel(), self.block),)](x, y, out, x.numel(), BLOCK=self.block)
        return out


adder = Adder().eval()


@torch.inference_mode()
def vector_add(x, y):
    return adder(x, y)
