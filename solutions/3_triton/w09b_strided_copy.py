"""Strided copy: a view's elements, in a contiguous tensor.

strided_copy(x) takes a tensor of three dimensions, of float32 or bfloat16, with any strides but negative ones. So x may
be a transpose, a permutation, a slice that begins anywhere or takes every second element, or an expanded tensor, in
which an axis of stride 0 repeats its elements. It returns a new contiguous tensor of the same shape and dtype, with the
same bits. x may have any number of elements, and lie in a storage of more than 2**32: offsets need 64 bits.

One program copies a tile. Decide along which axis of x its lanes run while they load, and along which axis of the
output while they store, and which two of the three axes the tile spans. tl.trans(block) exchanges the axes of a block.
Graded: the values, the sectors and bytes that each line asks for, and on a GPU the time against x.clone() as PyTorch
does it. What an axis of stride 0 repeats is to be loaded once for a tile, not once for each element.

Bytes: the output once, and each sector of 32 bytes that holds an element of x once: of every second float, twice what
is stored; of an expanded tensor, next to nothing. 2 GiB for the transpose of 16384 x 16384 floats, 0.5 ms at the 4.2
TB/s that an H200 copies with.

Axes that lie in each other in x without gaps are one axis. Of what is left, the tile spans the last axis, along which
the output is contiguous, and the one with the smallest stride in x. Where these are two, the tile is loaded with its
last axis along the one and stored with its last axis along the other, and Triton exchanges the elements through shared
memory. Triton lets lanes run along a block's last axis unless it knows another to be contiguous. It knows that where a
stride is 1, which is compiled in; of a stride of 2 it knows nothing, so tl.trans says it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl

TILE = 4096
"""Elements of a tile."""

REPEATS = 8
"""Planes that a program stores where all of them are the same."""


class Axis(NamedTuple):
    """Its length, and its strides in the output and in x."""

    size: int
    out: int
    x: int


@triton.jit
def tile(first_row, rows, row_stride, ROWS: tl.constexpr, first_column, columns, column_stride, COLUMNS: tl.constexpr):
    """Offsets of the elements of a block, and which of them exist."""
    row = (first_row + tl.arange(0, ROWS))[:, None]
    column = (first_column + tl.arange(0, COLUMNS))[None, :]
    return row.to(tl.int64) * row_stride + column.to(tl.int64) * column_stride, (row < rows) & (column < columns)


@triton.jit
def copy_tiles(
    out,
    x,
    planes,
    rows,
    columns,
    out_plane,
    out_row,
    x_plane,
    x_row,
    x_column,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    X_ROWS: tl.constexpr,
    X_COLUMNS: tl.constexpr,
    PLANES: tl.constexpr,
    DOWN: tl.constexpr,
):
    """One program for a tile of ROWS x COLUMNS elements, stored to PLANES planes that are the same in x.

    out_plane, out_row, x_plane, x_row, x_column: strides. X_ROWS, X_COLUMNS: the part of the tile that is loaded, 1
    where x repeats it. DOWN: whether neighbors in x lie below each other in the tile.
    """
    across, down = tl.cdiv(columns, COLUMNS), tl.cdiv(rows, ROWS)
    number = tl.program_id(0)
    first_column = number % across * COLUMNS
    first_row = number // across % down * ROWS
    first_plane = number // across // down * PLANES

    plane = x + first_plane.to(tl.int64) * x_plane
    if DOWN:
        offsets, inside = tile(first_column, columns, x_column, X_COLUMNS, first_row, rows, x_row, X_ROWS)
        values = tl.trans(tl.load(plane + offsets, mask=inside))
    else:
        offsets, inside = tile(first_row, rows, x_row, X_ROWS, first_column, columns, x_column, X_COLUMNS)
        values = tl.load(plane + offsets, mask=inside)

    values = tl.broadcast_to(values, (ROWS, COLUMNS))
    offsets, inside = tile(first_row, rows, out_row, ROWS, first_column, columns, 1, COLUMNS)
    for index in range(first_plane, min(first_plane + PLANES, planes)):
        tl.store(out + index.to(tl.int64) * out_plane + offsets, values, mask=inside)


def strided_copy(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel() == 0:
        return out
    *others, column = merged(x.shape, x.stride())
    nearest = min((axis for axis in (*others, column) if axis.x), key=lambda axis: axis.x, default=column)
    row = others.pop(others.index(nearest) if nearest in others else -1)
    (plane,) = others

    down = row is nearest and column.x > 0
    rows, columns = sides(row.size, column.size, down)
    planes = REPEATS if plane.x == 0 else 1
    grid = triton.cdiv(column.size, columns) * triton.cdiv(row.size, rows) * triton.cdiv(plane.size, planes)
    copy_tiles[grid,](
        out,
        x,
        plane.size,
        row.size,
        column.size,
        plane.out,
        row.out,
        plane.x,
        row.x,
        column.x,
        ROWS=rows,
        COLUMNS=columns,
        X_ROWS=rows if row.x else 1,
        X_COLUMNS=columns if column.x else 1,
        PLANES=planes,
        DOWN=down,
    )
    return out


def merged(shape: Sequence[int], strides: Sequence[int]) -> list[Axis]:
    """Three axes for a tensor, outermost first, those that lie in each other without gaps as one. Some have size 1."""
    axes: list[Axis] = []
    out = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if axes and stride == axes[0].size * axes[0].x:
            axes[0] = axes[0]._replace(size=size * axes[0].size)
        elif size > 1:
            axes.insert(0, Axis(size, out, stride))
        out *= size
    return [Axis(1, out, 0)] * (3 - len(axes)) + axes


def sides(rows: int, columns: int, down: bool) -> tuple[int, int]:
    """Of a tile: nearly square where both sides are read or written along, else as wide as the columns."""
    width = min(64 if down else 1024, triton.next_power_of_2(columns))
    height = min(TILE // width, triton.next_power_of_2(rows))
    return height, min(TILE // height, triton.next_power_of_2(columns))
