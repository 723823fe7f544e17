"""Squares of width x width in registers alone: both sides are whole sectors, and nothing is shared."""

import cutlass
import cutlass.cute as cute
import torch

from kernelpath.lanes import cute as lane


@cute.kernel
def turn(x: cute.Tensor, out: cute.Tensor, width: cutlass.Constexpr):
    lane_x, lane_y, warp = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    down = cute.ceil_div(x.shape[0], 32 * width)
    row = (block % down * 32 + warp * 8 + lane_y) * width
    column = (block // down * 4 + lane_x) * width
    if row < x.shape[0] and column < x.shape[1]:
        source = cute.local_tile(x, (width, width), (row // width, column // width))
        target = cute.local_tile(out, (width, width), (column // width, row // width))
        atom = cute.make_copy_atom(
            cute.nvgpu.CopyUniversalOp(), x.element_type, num_bits_per_copy=width * x.element_type.width
        )
        turned = cute.make_rmem_tensor(cute.make_layout((width, width), stride=(width, 1)), x.element_type)
        for r in cutlass.range_constexpr(width):
            part = cute.make_rmem_tensor((width,), x.element_type)
            cute.copy(atom, source[r, None], part)
            for c in cutlass.range_constexpr(width):
                turned[c, r] = part[c]
        for c in cutlass.range_constexpr(width):
            cute.copy(atom, turned[c, None], target[c, None])


@cute.jit
def launch(x: cute.Tensor, out: cute.Tensor, width: cutlass.Constexpr):
    blocks = cute.ceil_div(x.shape[0], 32 * width) * cute.ceil_div(x.shape[1], 4 * width)
    wide = [
        cute.make_tensor(t.iterator, cute.make_layout(t.shape, stride=(cute.assume(t.stride[0], divby=width), 1)))
        for t in (x, out)
    ]
    turn(*wide, width).launch(grid=[blocks, 1, 1], block=[4, 8, 4])


def transpose(x: torch.Tensor) -> torch.Tensor:
    out = x.new_empty(x.shape[::-1])
    width = 16 // x.element_size()
    if any(size % width for size in x.shape) or x.data_ptr() % 16:
        return narrow(x, out)
    lane.run(launch, x, out, width)
    return out


@cute.kernel
def tile_of_one(x: cute.Tensor, out: cute.Tensor):
    tx, ty, _ = cute.arch.thread_idx()
    bx, by, _ = cute.arch.block_idx()
    tile = cutlass.utils.SmemAllocator().allocate_tensor(x.element_type, cute.make_layout((32, 32), stride=(34, 1)), 16)
    for k in cutlass.range_constexpr(0, 32, 8):
        row, column = bx * 32 + ty + k, by * 32 + tx
        if row < x.shape[0] and column < x.shape[1]:
            tile[ty + k, tx] = x[row, column]
    cute.arch.sync_threads()
    for k in cutlass.range_constexpr(0, 32, 8):
        row, column = bx * 32 + tx, by * 32 + ty + k
        if row < x.shape[0] and column < x.shape[1]:
            out[column, row] = tile[tx, ty + k]


@cute.jit
def launch_of_one(x: cute.Tensor, out: cute.Tensor):
    grid = [cute.ceil_div(x.shape[0], 32), cute.ceil_div(x.shape[1], 32), 1]
    tile_of_one(x, out).launch(grid=grid, block=[32, 8, 1])


def narrow(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    lane.run(launch_of_one, x, out)
    return out
