"""Transpose a matrix with 16-byte accesses on both sides.

transpose(x) takes a contiguous matrix of float32 or bfloat16 of any shape and returns x.t() as a new contiguous tensor,
bit for bit. x is not always aligned to 16 bytes. It may have more than 2**32 elements, so offsets need 64 bits, like
the strides of the DSL's tensors.

A vector of x is part of a row of x, but a vector of out is part of a column of x. So a thread loads a square, `width`
vectors of `width` elements, and transposes it in its registers. A block transposes one tile, with three tiled copies:

    load    x to registers: neighboring threads take neighboring squares of a row of squares
    turn    registers to shared memory, in the order of out, with a vector for each column of the square
    store   shared memory to out: neighboring threads take neighboring vectors of a row of out

A swizzle of the tile in shared memory avoids bank conflicts in both copies and keeps vectors together. If the shape or
the address doesn't allow 16-byte accesses, vectors and squares have one element.

Start with squares of one element and a shared-memory layout without a swizzle. The grader checks that the result is
equal bit for bit, and that accesses to global memory are 16 bytes wide where the shape allows it. It also counts the
requested sectors and the bank conflicts. On a GPU, it compares the time with x.t().contiguous().

The grader enforces these limits on the largest case (rows=512 columns=768 dtype=float32); smaller cases get some slack
for partial tiles. Each load or store may touch at most 1.1 times the sectors that its bytes require. In total, global
memory accesses may move at most 1.1 times the size of the inputs and outputs. Bank conflicts may add at most 0.5
wavefronts per request. Each thread must load and store 16 bytes at a time.

Bound: a copy of the same bytes, 8 for each float32 and 4 for each bfloat16. On an H200 at 8192 x 8192 this
kernel reaches 0.98 of it in float32 and 0.96 in bfloat16; in single elements, at 8191 x 8193, 0.84 and 0.77.
"""

from typing import NamedTuple

import cutlass
import cutlass.cute as cute
import torch
from cutlass.memory import SmemAllocator

from kernelpath.lanes import cute as lane

BANKS, BANK_BITS = 32, 32


class Tile(NamedTuple):
    """The rows and columns of x that a block transposes, and the number of its threads."""

    rows: int
    columns: int
    threads: int


TILES = {torch.float32: Tile(64, 64, 256), torch.bfloat16: Tile(128, 128, 128)}
SINGLE = Tile(128, 64, 512)  # for single elements, with more threads


def log2(power: int) -> int:
    return power.bit_length() - 1


def shared_layout(tile: Tile, width: int, bits: int) -> cute.ComposedLayout:
    """Return the layout of a tile of out in shared memory, (column, row) of x -> offset.

    It is row-major except for the order of the vectors in a row. Neighboring lanes store to columns that are `width`
    apart, in the same row. Vector v of column c is at v ^ (c / width), so that the lanes of a wavefront access
    different banks. Elements of 2 bytes stay together in pairs, because a bank is 4 bytes wide.
    """
    plain = cute.make_layout((tile.columns, tile.rows), stride=(tile.rows, 1))
    unit = max(width, BANK_BITS // bits)
    units = BANKS * BANK_BITS // (unit * bits)
    swizzle = cute.make_swizzle(log2(units), log2(unit), log2(tile.rows * width // unit))
    return cute.make_composed_layout(swizzle, 0, plain)


def inside(coordinates: cute.Tensor, shape: cute.Shape) -> cute.Tensor:
    """Return for each access of a thread whether it is inside a matrix of this shape. coordinates: of its values."""
    first = coordinates[(0, None), None, None]
    pred = cute.make_rmem_tensor(first.shape, cutlass.Boolean)
    for i in range(cute.size(pred)):
        pred[i] = cute.elem_less(first[i], shape)
    return pred


@cute.kernel
def transpose_kernel(
    x: cute.Tensor,
    out: cute.Tensor,
    load: cute.TiledCopy,
    transpose_copy: cute.TiledCopy,
    store: cute.TiledCopy,
    tile: cutlass.Constexpr,
    width: cutlass.Constexpr,
):
    """Transpose one tile per block. width: the number of elements of an access."""
    tidx, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    # Blocks go down the rows first, so that blocks which run together write whole rows of out.
    tiles_m = cute.ceil_div(x.shape[0], tile.rows)
    tile_m, tile_n = block % tiles_m, block // tiles_m
    layout = shared_layout(tile, width, x.element_type.width)
    smem = SmemAllocator().allocate_tensor(x.element_type, layout, 128)

    thr_copy = load.get_slice(tidx)
    tiler = (tile.rows, tile.columns), (tile_m, tile_n)
    source = thr_copy.partition_S(cute.local_tile(x, *tiler))
    coordinates = thr_copy.partition_S(cute.local_tile(cute.make_identity_tensor(x.shape), *tiler))
    squares = cute.make_rmem_tensor(source.shape, x.element_type)
    cute.copy(load, source, squares, pred=inside(coordinates, x.shape))

    thr_copy = transpose_copy.get_slice(tidx)
    target = thr_copy.partition_D(smem)
    turned = cute.make_rmem_tensor(target.shape, x.element_type)
    # Registers have a layout too: a square is transposed by exchanging its strides, 1 and width.
    count = cute.size(squares) // width**2
    flipped = cute.make_layout(((width, width), 1, count), stride=((width, 1), 0, width**2))
    cute.basic_copy(cute.composition(squares, flipped), turned)
    cute.copy(transpose_copy, turned, target)
    cute.arch.sync_threads()

    thr_copy = store.get_slice(tidx)
    tiler_T = (tile.columns, tile.rows), (tile_n, tile_m)
    vectors = thr_copy.partition_S(smem)
    coordinates = thr_copy.partition_D(cute.local_tile(cute.make_identity_tensor(out.shape), *tiler_T))
    values = cute.make_rmem_tensor(vectors.shape, x.element_type)
    cute.copy(store, vectors, values)
    cute.copy(store, values, thr_copy.partition_D(cute.local_tile(out, *tiler_T)), pred=inside(coordinates, out.shape))


def aligned(matrix: cute.Tensor, width: int) -> cute.Tensor:
    """Return the matrix with the promise to the compiler that its row stride is a multiple of `width` elements."""
    stride = cute.assume(matrix.stride[0], divby=width)
    return cute.make_tensor(matrix.iterator, cute.make_layout(matrix.shape, stride=(stride, 1)))


@cute.jit
def launch(x: cute.Tensor, out: cute.Tensor, tile: cutlass.Constexpr, width: cutlass.Constexpr):
    """Assign a tile to threads in three ways, and launch a block for each tile of x."""
    dtype = x.element_type
    atom = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), dtype, num_bits_per_copy=width * dtype.width)
    threads_n, threads_m = tile.columns // width, tile.rows // width
    squares = tile.threads // threads_n, threads_n
    square = cute.make_layout((width, width), stride=(width, 1))
    load = cute.make_tiled_copy_tv(atom, cute.make_layout(squares, stride=(threads_n, 1)), square)
    transpose_copy = cute.make_tiled_copy_tv(atom, cute.make_layout(squares[::-1]), square)
    rows = cute.make_layout((tile.threads // threads_m, threads_m), stride=(threads_m, 1))
    store = cute.make_tiled_copy_tv(atom, rows, cute.make_layout((1, width)))
    blocks = cute.ceil_div(x.shape[0], tile.rows) * cute.ceil_div(x.shape[1], tile.columns)
    kernel = transpose_kernel(aligned(x, width), aligned(out, width), load, transpose_copy, store, tile, width)
    kernel.launch(grid=[blocks, 1, 1], block=[tile.threads, 1, 1])


def transpose(x: torch.Tensor) -> torch.Tensor:
    rows, columns = x.shape
    out = x.new_empty(columns, rows)
    if x.numel() == 0:
        return out
    tile, width = TILES[x.dtype], 16 // x.element_size()
    if rows % width or columns % width or x.data_ptr() % 16:
        tile, width = SINGLE, 1
    lane.run(launch, x, out, tile, width)
    return out
