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

# TODO: two register layouts, gl.BlockedLayout(...), and a shared layout per dtype, gl.SwizzledSharedLayout(...)


@gluon.jit
def transpose_kernel(
    out_ptr, x_ptr, rows, columns, TILE: gl.constexpr,
    LOAD: gl.constexpr, SHARED: gl.constexpr, STORE: gl.constexpr,
):  # fmt: skip
    """Transpose one tile per program. The layout of an arange is a slice of the layout of the block that it indexes."""
    tiles_in_row = gl.cdiv(columns, TILE)
    first_row = (gl.program_id(0) // tiles_in_row).to(gl.int64) * TILE
    first_column = (gl.program_id(0) % tiles_in_row).to(gl.int64) * TILE
    # TODO: load the tile in the layout LOAD, write it to shared memory, read it in the layout STORE, and store it


def transpose(x: torch.Tensor) -> torch.Tensor:
    raise NotImplementedError("TODO: launch transpose_kernel with your layouts, then delete this line")
    rows, columns = x.shape
    out = x.new_empty(columns, rows)
    programs = triton.cdiv(rows, TILE) * triton.cdiv(columns, TILE)
    return out
