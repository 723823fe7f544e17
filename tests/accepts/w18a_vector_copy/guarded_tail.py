"""The tail as hint 3 describes it: element by element, value k of a thread being element k * 256 + thread."""

import cutlass
import cutlass.cute as cute
import torch

from kernelpath.lanes import cute as lane


@cute.kernel
def copy_tiles(src: cute.Tensor, dst: cute.Tensor, width: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    tile = 256 * width
    count = cute.size(src)
    layout = cute.make_layout((256, width), stride=(width, 1))
    mine = cute.composition(cute.zipped_divide(src, (tile,))[None, block], layout)[thread, None]
    yours = cute.composition(cute.zipped_divide(dst, (tile,))[None, block], layout)[thread, None]
    if block * tile <= count - tile:
        bits = width * src.element_type.width
        atom = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), src.element_type, num_bits_per_copy=bits)
        values = cute.make_rmem_tensor_like(mine)
        cute.copy(atom, mine, values)
        cute.copy(atom, values, yours)
    else:
        for k in cutlass.range_constexpr(width):
            index = block * tile + k * 256 + thread
            if index < count:
                dst[index] = src[index]


@cute.jit
def launch(src: cute.Tensor, dst: cute.Tensor):
    bits = 8 * min(src.iterator.alignment, dst.iterator.alignment)
    width = cutlass.const_expr(bits // src.element_type.width)
    blocks = cute.ceil_div(cute.size(src), 256 * width)
    copy_tiles(src, dst, width).launch(grid=[blocks, 1, 1], block=[256, 1, 1])


def vector_copy(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    lane.run(launch, x, out)
    return out
