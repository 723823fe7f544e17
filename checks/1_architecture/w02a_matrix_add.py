"""Matrix addition: two indices, two strides.

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
        {"rows": 7, "columns": 31, "pad": 0},
        {"rows": 8, "columns": 32, "pad": 3},
        {"rows": 9, "columns": 33, "pad": 5},
        {"rows": 8209, "columns": 2, "pad": 1},
        {"rows": 127, "columns": 509, "pad": 0},
        {"rows": 256, "columns": 512, "pad": 8},
    ),
    vary=("rows", "columns"),
    reference=reference,
    # One rounding of the sum is 2^-24 (6.0e-8) at most; x and y in TF32 miss by 1.4e-4 in the median.
    tolerance={"float32": Tolerance(rtol=6.0e-8, atol=0.0)},
    bench={"rows": 8192, "columns": 8192, "pad": 0},  # 256 MiB a matrix, 13 times the L2 of an H200 in all
    baseline=torch.add,
    min_speedup=0.7,
    bytes_moved=lambda rows, columns, pad: 12 * rows * columns,
    flops=lambda rows, columns, pad: rows * columns,
    traffic=Traffic(sectors=1.3, bytes=1.3),
    hints=(
        "Memory has one dimension. Where does element (row, column) lie, if one row begins `stride` elements after the"
        " other? x, y and out may each have a stride of their own.",
        "Give threadIdx.x to the columns, because neighbouring threads should touch neighbouring addresses, and"
        " threadIdx.y to the rows. Both ends need a guard. The grid has two dimensions, each rounded up:"
        " ((columns + 31) // 32, (rows + 7) // 8).",
        "`const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;"
        " if (row < rows && column < columns) out[(long long)row * columns + column] = x[row * x_stride + column]"
        " + y[row * y_stride + column];`. For speed, let a thread add a float4 where columns, strides and addresses"
        " are multiples of four elements.",
    ),
    questions=(
        Question(
            ask="A matrix of 1000 x 1000 floats lies in memory with a row stride of 1024 elements. How many elements"
            " behind the first one is element (3, 5)?",
            answer=3077.0,
            why="Three whole rows of 1024, whether all of it is used or not, and 5 more: 3 * 1024 + 5.",
        ),
        Question(
            ask="Blocks are (4, 64) threads: 4 along the columns, 64 along the rows. How many 32-byte sectors does one"
            " load of a warp touch in a wide, aligned float32 matrix?",
            answer=8.0,
            why="Warps are cut with threadIdx.x running fastest, so a warp covers 8 rows of 4 columns. Four floats are"
            " 16 bytes, half a sector, and each row has a sector of its own. A block of (32, 8) would touch 4.",
            predict=True,
        ),
        Question(
            ask="How many blocks of 32 x 8 threads does it take for 1000 x 1000 elements, one element a thread?",
            answer=4000.0,
            why="1000 / 32 rounded up is 32, and 1000 / 8 is 125: 32 * 125.",
        ),
        Question(
            ask="You change blocks of (32, 8) into blocks of (256, 1). What happens to the sectors of a wide matrix?",
            choices=("they stay the same", "they fall to an eighth", "they grow eightfold"),
            answer="they stay the same",
            why="What counts is the warp: in both shapes its 32 lanes lie side by side in one row.",
            predict=True,
        ),
    ),
    explain="Two dimensions are a way to write indices; memory knows one. An expert therefore looks first for the"
    " longest stretch that is contiguous. Where both matrices are contiguous as a whole, this is a vector addition of"
    " rows * columns elements, without a division and without a ragged edge in every row. Where only rows are"
    " contiguous, the index that runs inside a row belongs to threadIdx.x, 16 bytes a thread if all strides allow it."
    " And strides are worth accepting: a kernel that insists on contiguous inputs makes its caller copy a slice first,"
    " which moves 8 bytes an element beside the 12 that the addition takes.",
)
