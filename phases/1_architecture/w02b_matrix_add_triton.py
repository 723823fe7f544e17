"""Matrix addition in Triton.

matrix_add(x, y) takes two float32 matrices of the same shape, with any number of columns and up to 500,000 rows (a grid
has at most 65,535 blocks in y). Rows are contiguous, but the row stride may exceed the row length: x[:, :100] of a
wider matrix is a legal input. It returns x + y as a new contiguous tensor. Tensors have fewer than 2**31 elements, so
32-bit offsets suffice.

One program adds a tile of ROWS x COLUMNS elements. The grader checks the values, the sectors that each line requests,
and, on a GPU, the time compared with torch.add.

The grader enforces these limits on the largest case (rows=256 columns=512 pad=16); smaller cases get some slack for
partial tiles. Each load or store may touch at most 1.3 times the sectors that its bytes require. In total, global
memory accesses may move at most 1.3 times the size of the inputs and outputs.
"""

import torch
import triton
import triton.language as tl

ROWS, COLUMNS = 8, 128


@triton.jit
def matrix_add_tiles(x, y, out, rows, columns, x_stride, y_stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Add a tile of ROWS x COLUMNS elements with one program. x, y and out are pointers to their first elements."""
    # TODO: compute this program's rows and columns, mask those outside, load, add, store


def matrix_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    rows, columns = x.shape
    out = x.new_empty(rows, columns)
    # TODO: choose the grid, then launch matrix_add_tiles[grid] with
    # TODO: (x, y, out, rows, columns, x.stride(0), y.stride(0), ROWS, COLUMNS)
    raise NotImplementedError("launch the kernel, then return out")
