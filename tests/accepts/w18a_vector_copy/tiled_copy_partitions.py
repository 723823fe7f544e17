"""make_tiled_copy_tv with slices and partitions of source and destination, and a predicate for the last tile."""

import cutlass
import cutlass.cute as cute
import torch

from kernelpath.lanes import cute as lane

THREADS = 128


@cute.kernel
def copy_kernel(src: cute.Tensor, dst: cute.Tensor, tiled_copy: cute.TiledCopy, tile: cutlass.Constexpr):
    tid, _, _ = cute.arch.thread_idx()
    bid, _, _ = cute.arch.block_idx()
    mine = tiled_copy.get_slice(tid)
    source = mine.partition_S(cute.local_tile(src, (tile,), (bid,)))
    target = mine.partition_D(cute.local_tile(dst, (tile,), (bid,)))
    if bid * tile <= cute.size(src) - tile:
        registers = cute.make_fragment_like(source)
        cute.copy(tiled_copy, source, registers)
        cute.copy(tiled_copy, registers, target)
    else:
        for step in cutlass.range_constexpr(tile // THREADS):
            i = bid * tile + step * THREADS + tid
            if i < cute.size(src):
                dst[i] = src[i]


@cute.jit
def copy(src: cute.Tensor, dst: cute.Tensor):
    bits = min(src.iterator.alignment, dst.iterator.alignment) * 8
    each = cutlass.const_expr(bits // src.element_type.width)
    atom = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), src.element_type, num_bits_per_copy=bits)
    tiled_copy = cute.make_tiled_copy_tv(atom, cute.make_layout(THREADS), cute.make_layout(each))
    grid = cute.ceil_div(cute.size(src), THREADS * each)
    copy_kernel(src, dst, tiled_copy, THREADS * each).launch(grid=[grid, 1, 1], block=[THREADS, 1, 1])


def vector_copy(x):
    out = torch.empty_like(x)
    lane.run(copy, x, out)
    return out
