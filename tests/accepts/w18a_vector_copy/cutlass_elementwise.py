"""CUTLASS's elementwise examples: make_layout_tv, zipped_divide, a tiled copy, coordinates and a predicate."""

import cutlass
import cutlass.cute as cute
import torch

from kernelpath.lanes import cute as lane


@cute.kernel
def copy_kernel(gX: cute.Tensor, gO: cute.Tensor, cC: cute.Tensor, shape: cute.Shape, tv_layout: cute.Layout):
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    block = ((None, None), (0, bidx))
    blkX, blkO, blkCrd = gX[block], gO[block], cC[block]
    thrX = cute.composition(blkX, tv_layout)[tidx, None]
    thrO = cute.composition(blkO, tv_layout)[tidx, None]
    thrCrd = cute.composition(blkCrd, tv_layout)[tidx, None]
    if cute.elem_less(thrCrd[cute.size(thrCrd) - 1], shape):
        frag = cute.make_rmem_tensor_like(thrX)
        frag.store(thrX.load())
        thrO.store(frag.load())
    else:
        for i in cutlass.range_constexpr(cute.size(thrX)):
            if cute.elem_less(thrCrd[i], shape):
                thrO[i] = thrX[i]


@cute.jit
def copy(mX: cute.Tensor, mO: cute.Tensor, vector: cutlass.Constexpr):
    matrix = cute.make_layout((1, cute.size(mX)), stride=(0, 1))
    row_X, row_O = cute.make_tensor(mX.iterator, matrix), cute.make_tensor(mO.iterator, matrix)
    thr_layout = cute.make_ordered_layout((1, 128), order=(1, 0))
    val_layout = cute.make_ordered_layout((1, vector), order=(1, 0))
    tiler_mn, tv_layout = cute.make_layout_tv(thr_layout, val_layout)
    gX, gO = cute.zipped_divide(row_X, tiler_mn), cute.zipped_divide(row_O, tiler_mn)
    idC = cute.make_identity_tensor(row_O.shape)
    cC = cute.zipped_divide(idC, tiler=tiler_mn)
    copy_kernel(gX, gO, cC, row_O.shape, tv_layout).launch(
        grid=[cute.size(gX, mode=[1]), 1, 1], block=[cute.size(tv_layout, mode=[0]), 1, 1]
    )


def vector_copy(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    aligned = x.data_ptr() % 16 == 0
    lane.run(copy, x, out, 16 // x.element_size() if aligned else 1)
    return out
