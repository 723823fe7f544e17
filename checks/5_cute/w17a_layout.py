"""Layouts: shape and stride as functions.

Week 17. Six ways to place a matrix in memory, each as a CuTe layout; one case a layout and size.
"""

import torch

from kernelpath.course.spec import EXACT, Exercise, Question

LAYOUTS = ("row_major", "column_major", "padded", "broadcast", "tiled", "thread_values")


def inputs(rng: torch.Generator, layout: str, tile_rows: int, tile_columns: int) -> tuple[str, torch.Tensor]:
    """The layout's name, and a matrix of 4 * tile_rows rows and 8 * tile_columns columns."""
    return layout, torch.zeros(4 * tile_rows, 8 * tile_columns, dtype=torch.int8, device=rng.device)


def reference(layout: str, matrix: torch.Tensor) -> torch.Tensor:
    rows, columns = matrix.shape
    i = torch.arange(rows, device=matrix.device)[:, None]
    j = torch.arange(columns, device=matrix.device)[None, :]
    tile = (i // 4) * (columns // 8) + j // 8
    offsets = {
        "row_major": i * columns + j,
        "column_major": i + j * rows,
        "padded": i * (columns + 1) + j,
        "broadcast": 0 * i + j,
        "tiled": tile * 32 + (i % 4) * 8 + j % 8,
        "thread_values": (j // 4 * rows + i) * 4 + j % 4,
    }
    return offsets[layout]


EXERCISE = Exercise(
    entry="offsets",
    inputs=inputs,
    cases=tuple(
        {"layout": layout, "tile_rows": tile_rows, "tile_columns": tile_columns}
        for layout in LAYOUTS
        for tile_rows, tile_columns in ((3, 2), (2, 5))
    ),
    vary=("tile_rows", "tile_columns"),
    reference=reference,
    tolerance={"int64": EXACT},
    bytes_moved=lambda layout, tile_rows, tile_columns: 8 * 32 * tile_rows * tile_columns,
    kind="python",
    hints=(
        "Take one step down a column and one step along a row. How many elements further in memory is each?"
        " These two numbers are the strides.",
        "One stride a mode is not enough for `tiled`: a step inside a tile and a step to the next tile differ. Split"
        " the mode in two, innermost first: the shape (rows) becomes (4, rows // 4), with a stride for each part.",
        "tiled: shape ((4, rows // 4), (8, columns // 8)). Inside a tile the strides are 8 and 1. The next tile to the"
        " right begins 32 elements on; the next row of tiles begins a whole row of tiles on, columns // 8 * 32."
        " thread_values: shape (threads, (4, values // 4)).",
    ),
    questions=(
        Question(
            ask="Which offset does the layout ((4,3),(8,2)):((8,64),(1,32)) give to row 5, column 9?",
            answer=105,
            why="Row 5 is (1, 1): 1*8 + 1*64 = 72. Column 9 is (1, 1): 1*1 + 1*32 = 33. Together 105.",
        ),
        Question(
            ask="How many different offsets does (128,64):(0,1) have?",
            answer=64,
            why="The stride of the rows is 0, so that all 128 rows lie at the same 64 offsets: a broadcast.",
        ),
        Question(
            ask="A tile of float32 in shared memory has the layout (32,32):(33,1). How many banks do the 32 elements"
            " of a column touch?",
            answer=32,
            why="Going down a column the offset grows by 33, and 33 modulo 32 banks is 1: 32 rows, 32 different banks.",
        ),
        Question(
            ask="Which layout is the transpose of (5,7):(7,1), that is, gives to (j, i) what that gives to (i, j)?",
            choices=("(7,5):(1,7)", "(7,5):(5,1)", "(5,7):(1,5)"),
            answer="(7,5):(1,7)",
            why="Swapping the modes swaps shapes and strides together. No element moves: only the function changes.",
        ),
    ),
    explain="To an expert a tensor is a pointer and such a function. Cutting into tiles, dealing out to threads and"
    " transposing are then operations on layouts: composition and division, the next two exercises. Where shapes and"
    " strides are known when the kernel is compiled, all the arithmetic of an index is done by the compiler. The same"
    " functions describe which thread holds which value of a tensor-core operand, and no one has to draw that table.",
)
