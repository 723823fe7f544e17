"""Matrix addition in Triton: a block with two dimensions.

Week 2. out = x + y for float32 matrices whose rows are contiguous but may lie further apart than they are long.
"""

import torch

from kernelpath.course import draw
from kernelpath.course.spec import Exercise, Question, Tolerance, Traffic


def inputs(rng: torch.Generator, rows: int, columns: int, pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    """x is the left part of a matrix that is `pad` columns wider, y the right part of one that is 2 pad wider."""
    x, y = draw.normal(rng, rows, columns + pad), draw.normal(rng, rows, columns + 2 * pad)
    return x[:, :columns], y[:, 2 * pad :]


def reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.double() + y.double()


EXERCISE = Exercise(
    entry="matrix_add",
    inputs=inputs,
    cases=(
        {"rows": 1, "columns": 1, "pad": 0},
        {"rows": 7, "columns": 127, "pad": 0},
        {"rows": 8, "columns": 128, "pad": 3},
        {"rows": 9, "columns": 129, "pad": 5},
        {"rows": 127, "columns": 509, "pad": 0},
        {"rows": 256, "columns": 512, "pad": 16},
    ),
    vary=("rows", "columns"),
    reference=reference,
    # As in matrix_add: one rounding of the sum is 2^-24 (6.0e-8) at most.
    tolerance={"float32": Tolerance(rtol=6.0e-8, atol=0.0)},
    bench={"rows": 8192, "columns": 8192, "pad": 0},  # 256 MiB a matrix, 13 times the L2 of an H200 in all
    baseline=torch.add,
    min_speedup=0.7,
    bytes_moved=lambda rows, columns, pad: 12 * rows * columns,
    flops=lambda rows, columns, pad: rows * columns,
    traffic=Traffic(sectors=1.3, bytes=1.3),
    hints=(
        "A program works on a tile of ROWS x COLUMNS elements. Programs may be numbered in two dimensions as well:"
        " tl.program_id(0) and tl.program_id(1). Which rows and which columns are its own?",
        "row = tl.program_id(1) * ROWS + tl.arange(0, ROWS) is a vector, and so is column. row[:, None] is a column of"
        " ROWS x 1, column[None, :] a row of 1 x COLUMNS; added or compared, they give ROWS x COLUMNS. So a tile of"
        " offsets is row[:, None] * stride + column[None, :], and the mask is made in the same way.",
        "`row = (tl.program_id(1) * ROWS + tl.arange(0, ROWS))[:, None].to(tl.int64); column = (tl.program_id(0) *"
        " COLUMNS + tl.arange(0, COLUMNS))[None, :]; inside = (row < rows) & (column < columns); total = tl.load(x +"
        " row * x_stride + column, mask=inside) + tl.load(y + row * y_stride + column, mask=inside); tl.store(out +"
        " row * columns + column, total, mask=inside)`.",
    ),
    questions=(
        Question(
            ask="Tiles are 8 x 128. How many programs does it take for a matrix of 1000 x 1000?",
            answer=1000.0,
            why="1000 / 8 = 125 tiles down and 1000 / 128 rounded up = 8 across: 125 * 8.",
        ),
        Question(
            ask="row has the shape (8, 1), column the shape (1, 128). What is the shape of (row < rows) & (column <"
            " columns)?",
            choices=("(8, 128)", "(8, 1)", "(1, 128)", "(136,)"),
            answer="(8, 128)",
            why="An axis of length 1 is repeated along the other operand: broadcasting, as in NumPy and PyTorch.",
        ),
        Question(
            ask="A tile of 1024 x 1 instead of 8 x 128: how many 32-byte sectors does one load of a warp touch in a"
            " wide float32 matrix, if each thread loads one element at a time?",
            answer=32.0,
            why="The 32 lanes hold 32 rows, and each row has a sector of its own. The compiler can choose which thread"
            " holds what, but not which elements the tile has.",
            predict=True,
        ),
    ),
    explain="The compiler looks for the axis along which addresses are neighbours, and lays the lanes of a warp along"
    " it; so it does not matter which of the two axes of the tile you call the first. It cannot mend the tile's shape:"
    " a tile must be at least 8 floats wide to use whole sectors, and 128 to let a warp read 512 bytes of one row. It"
    " also has to know that rows begin at multiples of 16 bytes before it uses 16-byte accesses. Triton looks at every"
    " integer argument at the launch and notes whether it is a multiple of 16; a stride of 516 is none, though every"
    " row would be aligned. An expert knows this rule, and pads strides to multiples of 16.",
)
