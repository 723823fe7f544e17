"""local_tile and a copy atom whose width follows from the address: two bfloat16 or one float32 at a time."""

import cutlass
import cutlass.cute as cute
import torch

from kernelpath.lanes import cute as lane

TILE = 512


@cute.kernel
def copy_kernel(src: cute.Tensor, dst: cute.Tensor, atom: cute.CopyAtom, each: cutlass.Constexpr):
    thread = cute.arch.thread_idx()[0]
    block = cute.arch.block_idx()[0]
    if block * TILE <= cute.size(src) - TILE:
        tile_in = cute.local_tile(src, (TILE,), (block,))
        tile_out = cute.local_tile(dst, (TILE,), (block,))
        mine = cute.make_layout((TILE // each, each), stride=(each, 1))
        for step in cutlass.range_constexpr(TILE // each // 128):
            row = step * 128 + thread
            values = cute.make_rmem_tensor((each,), src.element_type)
            cute.copy(atom, cute.composition(tile_in, mine)[row, None], values)
            cute.copy(atom, values, cute.composition(tile_out, mine)[row, None])
    else:
        for step in cutlass.range_constexpr(TILE // 128):
            i = block * TILE + step * 128 + thread
            if i < cute.size(src):
                dst[i] = src[i]


@cute.jit
def copy(src: cute.Tensor, dst: cute.Tensor):
    bits = min(src.iterator.alignment * 8, dst.iterator.alignment * 8, 32)
    atom = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), src.element_type, num_bits_per_copy=bits)
    each = cutlass.const_expr(bits // src.element_type.width)
    copy_kernel(src, dst, atom, each).launch(grid=[cute.ceil_div(cute.size(src), TILE), 1, 1], block=[128, 1, 1])


def vector_copy(x):
    out = torch.empty_like(x)
    lane.run(copy, x, out)
    return out
