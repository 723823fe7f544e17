"""Gluon: the layout of every tile is the programmer's."""

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def add_kernel(x, y, out, n, BLOCK: gl.constexpr, layout: gl.constexpr):
    offsets = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    mask = offsets < n
    gl.store(out + offsets, gl.load(x + offsets, mask=mask) + gl.load(y + offsets, mask=mask), mask=mask)


def vector_add(x, y):
    out = torch.empty_like(x)
    layout = gl.BlockedLayout(size_per_thread=[4], threads_per_warp=[32], warps_per_cta=[4], order=[0])
    add_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024, layout=layout, num_warps=4)
    return out
