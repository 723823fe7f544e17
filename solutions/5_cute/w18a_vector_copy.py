"""Copy a vector with 16-byte accesses.

vector_copy(x) takes a contiguous vector of float32 or bfloat16, of 1 to 2**31 - 1 elements, and returns a copy of it.
The vector may be a slice, so its address may be aligned only to the size of an element.

A block copies one tile. One layout, (thread, value) -> offset, says which elements of the tile each thread copies. With
256 threads and 4 values per thread, it is (256,4):(4,1). Divide both vectors into tiles and compose a tile with this
layout. `cute.copy` then copies a thread's values with a single access. The last tile may be partial.

Start with one element per thread and an `if`. Widen the accesses when this version is correct. The grader checks that
the copy is equal bit for bit, and counts the requested sectors. On a GPU, it compares the time with PyTorch's copy.

The grader enforces these limits on the largest case (n=100003 offset=0 dtype=bfloat16); smaller cases get some slack
for partial tiles. Each load or store may touch at most 1.05 times the sectors that its bytes require. In total, global
memory accesses may move at most 1.05 times the size of the inputs and outputs.

Bound: n elements are read and n written. 2**28 float32 are 2 GiB, 0.5 ms at the 4.3 TB/s of an H200. There is no
arithmetic, so only the bytes in flight count. By Little's law, 4.3 TB/s at a loaded latency of 0.8 us need 3.4 MB in
flight, or 26 KB on each of 132 SMs, half of it loads; 2048 threads with one 16-byte load each have 33 KB. More loads
per thread were slower on an H200: 0.96 of PyTorch's copy with 4, against 1.01 with 1. Values are distributed as in
CUTLASS's element-wise examples.
"""

import cutlass
import cutlass.cute as cute
import torch

from kernelpath.lanes import cute as lane

THREADS = 256


@cute.kernel
def copy_kernel(src: cute.Tensor, dst: cute.Tensor, tv: cute.Layout, bits: cutlass.Constexpr):
    """Copy one tile per block. tv: (thread, value) -> offset in the tile. bits: the width of an access."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    tile = cute.size(tv)
    source = cute.composition(cute.zipped_divide(src, (tile,))[None, block], tv)[thread, None]
    target = cute.composition(cute.zipped_divide(dst, (tile,))[None, block], tv)[thread, None]
    if block * tile <= cute.size(src) - tile:  # the end of the last tile may be past 2**31 - 1
        atom = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), src.element_type, num_bits_per_copy=bits)
        values = cute.make_rmem_tensor_like(source)
        cute.copy(atom, source, values)
        cute.copy(atom, values, target)
    else:
        for row in cutlass.range_constexpr(cute.size(source)):
            i = block * tile + row * THREADS + thread
            if i < cute.size(src):
                dst[i] = src[i]


@cute.jit
def copy(src: cute.Tensor, dst: cute.Tensor):
    """Launch the copy with the widest accesses that both addresses allow. Alignments are known up to 16 bytes."""
    bits = min(src.iterator.alignment, dst.iterator.alignment) * 8
    width = cutlass.const_expr(bits // src.element_type.width)
    # Neighboring threads take neighboring vectors, so that each access of a warp is one span of 512 bytes.
    tv = cute.make_layout((THREADS, width), stride=(width, 1))
    blocks = cute.ceil_div(cute.size(src), cute.size(tv))
    copy_kernel(src, dst, tv, bits).launch(grid=[blocks, 1, 1], block=[THREADS, 1, 1])


def vector_copy(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    lane.run(copy, x, out)
    return out
