"""CuTe's algebra rather than strides by hand: ordered layouts, logical products, and composition."""

import cutlass
import cutlass.cute as cute
import torch

from kernelpath.lanes import cute as lane


@cute.jit
def row_major(out: cute.Tensor, m: cutlass.Constexpr, n: cutlass.Constexpr):
    fill(out, cute.make_ordered_layout((m, n), order=(1, 0)), m, n)


@cute.jit
def column_major(out: cute.Tensor, m: cutlass.Constexpr, n: cutlass.Constexpr):
    fill(out, cute.make_layout((m, n)), m, n)


@cute.jit
def padded(out: cute.Tensor, m: cutlass.Constexpr, n: cutlass.Constexpr):
    fill(out, cute.composition(cute.make_layout((n + 1) * m), cute.make_layout((m, n), stride=(n + 1, 1))), m, n)


@cute.jit
def broadcast(out: cute.Tensor, m: cutlass.Constexpr, n: cutlass.Constexpr):
    fill(out, cute.make_layout((m, n), stride=(0, 1)), m, n)


@cute.jit
def tiled(out: cute.Tensor, m: cutlass.Constexpr, n: cutlass.Constexpr):
    tile = cute.make_ordered_layout((4, 8), order=(1, 0))
    tiles = cute.make_ordered_layout((m // 4, n // 8), order=(1, 0))
    fill(out, cute.blocked_product(tile, tiles), m, n)


@cute.jit
def thread_values(out: cute.Tensor, m: cutlass.Constexpr, n: cutlass.Constexpr):
    fill(out, cute.make_layout((m, (4, n // 4)), stride=(4, (1, 4 * m))), m, n)


@cute.jit
def fill(out: cute.Tensor, layout: cute.Layout, m: cutlass.Constexpr, n: cutlass.Constexpr):
    for i in cutlass.range_constexpr(m):
        for j in cutlass.range_constexpr(n):
            out[i, j] = cutlass.Int64(cute.crd2idx((i, j), layout))


def offsets(name, matrix):
    out = torch.zeros(matrix.shape, dtype=torch.int64)
    lane.run(globals()[name], out, *matrix.shape)
    return out.to(matrix.device)
