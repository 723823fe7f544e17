"""Coalescing: rows gathered from a table, from 32 sectors a request down to 4.

Week 3. out[r, :] = table[index[r], :] for a contiguous float32 table and int64 indices: what an embedding does.
"""

import torch

from kernelpath.course import draw
from kernelpath.course.spec import EXACT, Exercise, Question, Traffic
from kernelpath.lanes import cuda

STRIDED = cuda.Kernel(
    "a_thread_a_row.cu",
    r"""
    __global__ void gather_rows(const float* table, const long long* index, float* out, int rows, int columns) {
        const int row = blockIdx.x * blockDim.x + threadIdx.x;
        if (row >= rows) return;
        const float* from = table + index[row] * columns;
        float* to = out + (long long)row * columns;
        for (int column = 0; column < columns; ++column) to[column] = from[column];
    }
    """,
    "gather_rows",
)


def strided(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """A thread for each row: the lanes of a warp are a row apart."""
    rows, columns = index.numel(), table.shape[1]
    out = table.new_empty(rows, columns)
    STRIDED[(rows + 255) // 256, 256](table, index, out, rows, columns)
    return out


def inputs(rng: torch.Generator, table: int, rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A table of `table` rows, and `rows` of them in random order. None comes twice, so that no cache helps."""
    index = torch.randperm(table, generator=rng, device=rng.device)[:rows].contiguous()
    return draw.normal(rng, table, columns), index


def reference(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return table[index]


EXERCISE = Exercise(
    entry="gather_rows",
    inputs=inputs,
    cases=(
        {"table": 1, "rows": 1, "columns": 1},
        {"table": 5, "rows": 3, "columns": 31},
        {"table": 5, "rows": 5, "columns": 32},
        {"table": 40, "rows": 37, "columns": 33},
        {"table": 300, "rows": 257, "columns": 8},
        {"table": 70, "rows": 61, "columns": 1009},
        {"table": 300, "rows": 256, "columns": 512},
    ),
    vary=("rows", "columns"),
    reference=reference,
    tolerance={"float32": EXACT},
    bench={"table": 1 << 18, "rows": 1 << 17, "columns": 512},  # 512 MiB in and out, 9 times the L2 of an H200
    baseline=strided,
    min_speedup=5.0,  # 11.6 on an H200, whose L1 catches part of what the baseline asks for
    bytes_moved=lambda table, rows, columns: 8 * rows * columns + 8 * rows,
    traffic=Traffic(sectors=1.1, bytes=1.2),
    hints=(
        "With a thread for each row, the 32 lanes of a warp are in 32 different rows at every moment. Each request"
        " touches 32 sectors, and uses 4 bytes of each. Which lanes should be in the same row?",
        "Give a row to a warp: all its lanes read the same index, and lane k copies the columns k, k + 32, k + 64, ..."
        " A block of 256 threads then has 8 rows. Which row is a thread's own, and which lane is it?",
        "`const int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32; if (row >= rows)"
        " return; for (int column = lane; column < columns; column += 32) out[(long long)row * columns + column] ="
        " table[index[row] * columns + column];`. Launch (rows + 7) // 8 blocks of 256. For speed, let a lane copy"
        " float4 where columns is a multiple of 4, and load several of them before it stores the first.",
    ),
    questions=(
        Question(
            ask="A thread for each row, rows of 512 floats. How many 32-byte sectors does one load of a warp touch?",
            answer=32.0,
            why="The lanes are a row apart, or further: each has a sector of its own, of which it uses 4 bytes.",
        ),
        Question(
            ask="How many times the compulsory bytes does the kernel with a thread for each row ask for?",
            answer=8.0,
            tolerance=0.02,
            why="32 sectors a request where 4 would do, in loads and in stores. (The index adds next to nothing.)",
            predict=True,
        ),
        Question(
            ask="A warp copies a row of 100 floats, a float a lane. How many lanes are idle in its last step?",
            answer=28.0,
            why="100 = 3 * 32 + 4: in the fourth step 4 lanes have something to do.",
        ),
        Question(
            ask="Rows of 8 floats are copied, a float a lane. Which lanes should copy a row, so that no lane is idle"
            " and each request needs the fewest sectors?",
            choices=(
                "all 32 lanes of a warp, so that it has one row",
                "8 neighbouring lanes, so that a warp has 4 rows",
                "one lane for each row, so that a warp has 32",
            ),
            answer="8 neighbouring lanes, so that a warp has 4 rows",
            why="8 floats are one sector. Four rows make 4 full sectors a request; a warp for each row would leave 24"
            " lanes idle, and a lane for each row would spread every request over 32 sectors.",
        ),
    ),
    explain="Nothing was computed, nothing was cached, and no byte was saved that the formula needs: the same loads"
    " were handed to other threads. That is all that coalescing is, and it is the largest factor that a single change"
    " will give you in this course. The cure is always the same: find the index that is contiguous in memory, and let"
    " it run with the lane. An expert then asks how many bytes are on their way. A gather has a load that depends on a"
    " load (first the index, then the row), so each row begins with an empty pipe; several 16-byte loads a lane,"
    " issued before the first store, fill it. Short rows are shared by fewer lanes, and where the rows of a table are"
    " read again and again, sorting the indices lets L2 help.",
)
