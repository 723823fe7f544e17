"""Transpose in Gluon: three layouts, two in registers and one in shared memory.

transpose(x) takes a contiguous float32 or bfloat16 matrix of any shape and returns x.t() as a new contiguous tensor,
bit for bit. x may have more than 2**32 elements.

A program transposes one tile. It loads the tile in a register layout in which neighboring lanes hold neighboring
elements of a row, and writes it to shared memory. It reads the tile back in a register layout in which neighboring
lanes hold neighboring elements of a column, and stores it. Triton would choose these layouts itself. In Gluon you
choose them. The grader checks that the result is bitwise equal, counts sectors and bank conflicts, and on a GPU
compares the time with x.t().contiguous().

The grader enforces these limits on the largest case (rows=512 columns=1024 dtype=float32); smaller cases get some slack
for partial tiles. Each load or store may touch at most 1.1 times the sectors that its bytes require. In total, global
memory accesses may move at most 1.1 times the size of the inputs and outputs. Bank conflicts may add at most 0.5
wavefronts per request.
"""

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

TILE, WARPS = 64, 8

# BlockedLayout(elements per thread, threads per warp, warps per program, order of the axes, fastest first)
ALONG_ROWS = gl.BlockedLayout([1, 1], [1, 32], [WARPS, 1], [1, 0])  # a warp takes 32 elements of one row
DOWN_COLUMNS = gl.BlockedLayout([1, 1], [32, 1], [1, WARPS], [0, 1])  # a warp takes 32 elements of one column

# SwizzledSharedLayout(vec, per_phase, max_phase, order): `vec` elements stay together, and in row r the group v is at
# v ^ (r / per_phase % max_phase). A bank is 4 bytes wide, so two bfloat16 stay together.
SHARED = {
    torch.float32: gl.SwizzledSharedLayout(1, 1, 32, [1, 0]),
    torch.bfloat16: gl.SwizzledSharedLayout(2, 1, 32, [1, 0]),
}


@gluon.jit
def transpose_kernel(
    out_ptr, x_ptr, rows, columns, TILE: gl.constexpr,
    LOAD: gl.constexpr, SHARED: gl.constexpr, STORE: gl.constexpr,
):  # fmt: skip
    """Transpose one tile per program. The layout of an arange is a slice of the layout of the block that it indexes."""
    tiles_in_row = gl.cdiv(columns, TILE)
    first_row = (gl.program_id(0) // tiles_in_row).to(gl.int64) * TILE
    first_column = (gl.program_id(0) % tiles_in_row).to(gl.int64) * TILE

    i = (first_row + gl.arange(0, TILE, gl.SliceLayout(1, LOAD)))[:, None]
    j = (first_column + gl.arange(0, TILE, gl.SliceLayout(0, LOAD)))[None, :]
    tile = gl.load(x_ptr + i * columns + j, mask=(i < rows) & (j < columns))

    shared = gl.allocate_shared_memory(x_ptr.dtype.element_ty, [TILE, TILE], SHARED, tile)
    tile = shared.load(STORE)

    i = (first_row + gl.arange(0, TILE, gl.SliceLayout(1, STORE)))[:, None]
    j = (first_column + gl.arange(0, TILE, gl.SliceLayout(0, STORE)))[None, :]
    gl.store(out_ptr + j * rows + i, tile, mask=(i < rows) & (j < columns))


def transpose(x: torch.Tensor) -> torch.Tensor:
    rows, columns = x.shape
    out = x.new_empty(columns, rows)
    programs = triton.cdiv(rows, TILE) * triton.cdiv(columns, TILE)
    layouts = ALONG_ROWS, SHARED[x.dtype], DOWN_COLUMNS
    transpose_kernel[(programs,)](out, x, rows, columns, TILE, *layouts, num_warps=WARPS)
    return out
