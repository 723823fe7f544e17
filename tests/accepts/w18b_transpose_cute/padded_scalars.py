"""Vectors in global memory, single values in a padded shared tile; raw loops over plain tensors."""

import cutlass
import cutlass.cute as cute
import torch

from kernelpath.lanes import cute as lane


@cute.kernel
def body(x: cute.Tensor, out: cute.Tensor, width: cutlass.Constexpr, pitch: cutlass.Constexpr):
    t = cute.arch.thread_idx()[0]
    block = cute.arch.block_idx()[0]
    rows, columns = x.shape
    down = (rows + 31) // 32
    first_row, first_column = block % down * 32, block // down * 32
    tile = cutlass.utils.SmemAllocator().allocate_tensor(x.element_type, cute.make_layout(32 * pitch), 16)
    of_x, of_out = cute.zipped_divide(x, (1, width)), cute.zipped_divide(out, (1, width))
    vectors = 32 // width
    for i in cutlass.range_constexpr(0, 32 * vectors, 64):
        if (i + t) < 32 * vectors:
            r, v = (i + t) // vectors, (i + t) % vectors
            if first_row + r < rows and first_column + v * width < columns:
                four = cute.make_rmem_tensor((width,), x.element_type)
                cute.autovec_copy(of_x[(0, None), (first_row + r, first_column // width + v)], four)
                for e in cutlass.range_constexpr(width):
                    tile[r * pitch + v * width + e] = four[e]
    cute.arch.sync_threads()
    for i in cutlass.range_constexpr(0, 32 * vectors, 64):
        if (i + t) < 32 * vectors:
            c, v = (i + t) // vectors, (i + t) % vectors
            if first_column + c < columns and first_row + v * width < rows:
                four = cute.make_rmem_tensor((width,), x.element_type)
                for e in cutlass.range_constexpr(width):
                    four[e] = tile[(v * width + e) * pitch + c]
                cute.autovec_copy(four, of_out[(0, None), (first_column + c, first_row // width + v)])


@cute.jit
def launch(x: cute.Tensor, out: cute.Tensor, width: cutlass.Constexpr, pitch: cutlass.Constexpr):
    x = cute.make_tensor(x.iterator, cute.make_layout(x.shape, stride=(cute.assume(x.stride[0], divby=width), 1)))
    out = cute.make_tensor(
        out.iterator, cute.make_layout(out.shape, stride=(cute.assume(out.stride[0], divby=width), 1))
    )
    blocks = cute.ceil_div(x.shape[0], 32) * cute.ceil_div(x.shape[1], 32)
    body(x, out, width, pitch).launch(grid=(blocks, 1, 1), block=(64, 1, 1))


def transpose(x):
    out = torch.empty_like(x.t(), memory_format=torch.contiguous_format)
    whole = x.shape[0] % 8 == 0 and x.shape[1] % 8 == 0 and x.data_ptr() % 16 == 0
    lane.run(launch, x, out, 16 // x.element_size() if whole else 1, 33 if x.dtype is torch.float32 else 34)
    return out
