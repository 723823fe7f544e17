"""Host-side set-up that touches no input: weights from arange and linspace, and a table of 17 floats."""

import torch
import triton
import triton.language as tl

TABLE = [1.0 if i % 2 else 2.0 for i in range(17)]


@triton.jit
def add_kernel(x, y, out, n, weights, table, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    one = tl.load(table + 1) * tl.load(weights + 5)
    tl.store(out + offsets, tl.load(x + offsets, mask) + one * tl.load(y + offsets, mask), mask)


def vector_add(x, y):
    out = torch.empty_like(x)
    table = torch.tensor(TABLE, device=x.device)
    weights = torch.arange(8, dtype=torch.float32).pow(2).sub(24) * torch.linspace(1, 1, 8).exp().log()
    add_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), weights.round().to(x.device), table, BLOCK=1024)
    return out
