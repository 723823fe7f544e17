"""Six layouts: where is element (i, j) of a matrix?

A CuTe layout is a function from coordinates to offsets, written shape:stride. The offset of (i, j) is i times the first
stride plus j times the second. A mode may itself be a tuple: in ((2,3),(4,2)):((1,8),(2,24)) the row i is split into (i
% 2, i // 2), the column j into (j % 4, j // 4), and every part has its own stride. A stride may be 0.

Each function below takes the number of rows, a multiple of 4, and the number of columns, a multiple of 8, and returns
`cute.make_layout(shape, stride=...)`. The first function is done. Offsets count elements, and the grader compares them
exactly. Print a layout to see it as shape:stride; no GPU is needed.
"""

import cutlass
import cutlass.cute as cute
import torch

from kernelpath.lanes import cute as lane


def row_major(rows: int, columns: int) -> cute.Layout:
    """Store one row after the other, as in C and PyTorch."""
    return cute.make_layout((rows, columns), stride=(columns, 1))


def column_major(rows: int, columns: int) -> cute.Layout:
    """Store one column after the other, as in Fortran and cuBLAS."""
    raise NotImplementedError("TODO: column_major")


def padded(rows: int, columns: int) -> cute.Layout:
    """Store the matrix row-major, with one unused element after each row.

    In shared memory, this shifts each row by one bank, so that a column can be read without conflicts.
    """
    raise NotImplementedError("TODO: padded")


def broadcast(rows: int, columns: int) -> cute.Layout:
    """Use a single row in memory as every row of the matrix. A kernel can add a bias in this way, without copies."""
    raise NotImplementedError("TODO: broadcast")


def tiled(rows: int, columns: int) -> cute.Layout:
    """Store contiguous tiles of 4 x 8 elements. Elements are row-major in a tile, and tiles in the matrix."""
    raise NotImplementedError("TODO: tiled")


def thread_values(threads: int, values: int) -> cute.Layout:
    """Assign a vector to threads, four elements at a time. Row t has the values of thread t.

    Thread 0 gets elements 0 to 3, thread 1 gets 4 to 7, and so on. After the last thread, it is thread 0's turn again.
    So a warp that loads its columns 0 to 3 reads 32 * 16 contiguous bytes of float32.
    """
    raise NotImplementedError("TODO: thread_values")


LAYOUTS = (row_major, column_major, padded, broadcast, tiled, thread_values)


def fitting(layout: cute.Layout, rows: int, columns: int, name: str) -> cute.Layout:
    """Return the layout if it has a coordinate for each row and column and no others."""
    if not isinstance(layout, cute.Layout):
        raise TypeError(f"{name} returns {layout}, not a layout")
    modes = [cute.size(layout, mode=[mode]) for mode in range(cute.rank(layout))]
    if modes != [rows, columns]:
        raise ValueError(f"{name}({rows}, {columns}) returns {layout}: its modes have {modes} coordinates")
    return layout


@cute.jit
def tabulate(table: cute.Tensor, layout_of: cutlass.Constexpr, rows: cutlass.Constexpr, columns: cutlass.Constexpr):
    """Write the offset of every coordinate into the table. This is host code: it runs on the CPU."""
    layout = fitting(layout_of(rows, columns), rows, columns, layout_of.__name__)
    for i in range(rows):
        for j in range(columns):
            table[i, j] = cutlass.Int64(layout((i, j)))


def offsets(name: str, matrix: torch.Tensor) -> torch.Tensor:
    """Return the offset of each coordinate of the matrix in the layout of this name, as int64."""
    layout_of = {layout.__name__: layout for layout in LAYOUTS}[name]
    table = torch.empty(matrix.shape, dtype=torch.int64)
    lane.run(tabulate, table, layout_of, *matrix.shape)
    return table.to(matrix.device)
