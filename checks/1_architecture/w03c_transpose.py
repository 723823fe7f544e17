"""Transpose: a tile in shared memory makes both sides coalesced.

Week 3. out[j, i] = x[i, j] for a contiguous float32 or bfloat16 matrix of any shape; out is contiguous too.
"""

import torch

from kernelpath.course import draw
from kernelpath.course.spec import EXACT, Exercise, Question, Traffic

BYTES = {"float32": 4, "bfloat16": 2}


def inputs(rng: torch.Generator, rows: int, columns: int, dtype: str) -> tuple[torch.Tensor]:
    return (draw.normal(rng, rows, columns, dtype=dtype),)


def reference(x: torch.Tensor) -> torch.Tensor:
    return x.t().contiguous()


EXERCISE = Exercise(
    entry="transpose",
    inputs=inputs,
    cases=(
        {"rows": 1, "columns": 1, "dtype": "float32"},
        {"rows": 31, "columns": 33, "dtype": "float32"},
        {"rows": 64, "columns": 64, "dtype": "bfloat16"},
        {"rows": 65, "columns": 63, "dtype": "bfloat16"},
        {"rows": 1, "columns": 1009, "dtype": "float32"},
        {"rows": 1009, "columns": 127, "dtype": "bfloat16"},
        {"rows": 127, "columns": 1009, "dtype": "float32"},
        {"rows": 512, "columns": 1024, "dtype": "float32"},
    ),
    vary=("rows", "columns"),
    reference=reference,
    tolerance={"float32": EXACT, "bfloat16": EXACT},  # nothing is computed; float32 by way of bfloat16 fails
    bench={"rows": 8192, "columns": 8192, "dtype": "float32"},  # 512 MiB in and out, 9 times the L2 of an H200
    baseline=lambda x: x.t().contiguous(),
    min_speedup=2.3,  # on an H200 the baseline moves 1151 GB/s, a copy 4282
    bytes_moved=lambda rows, columns, dtype: 2 * BYTES[dtype] * rows * columns,
    traffic=Traffic(sectors=1.1, bank_conflicts=0.5, bytes=1.1),
    hints=(
        "Neighbouring threads read neighbouring columns of x. Where do they write? Count the 32-byte sectors that one"
        " warp touches on each side: 4 would do.",
        "Put a place between reading and writing where order costs nothing: a tile in shared memory. Read it row by"
        " row, __syncthreads(), and write it out with the roles of threadIdx.x and threadIdx.y swapped, so that"
        " neighbouring threads write neighbouring addresses.",
        "__shared__ float tile[32][33]; a block of 32 x 8 threads takes 4 rows each: tile[y + k][x] = in[(row + k) *"
        " columns + column]. After the barrier: out[(tile_column + y + k) * rows + tile_row + x] = tile[x][y + k]. The"
        " 33rd column moves each row one bank on, so that reading a column meets 32 different banks. Guard both"
        " sides at the edges of the matrix, but never the barrier.",
    ),
    questions=(
        Question(
            ask="Each of the 32 lanes of a warp stores a float32 into another row of a wide matrix. How many 32-byte"
            " sectors does this one store touch?",
            answer=32.0,
            why="The addresses are a row apart, so each falls into a sector of its own. Side by side they fill 4.",
        ),
        Question(
            ask="The naive kernel reads along rows and writes down columns. How many times the compulsory bytes does it"
            " ask of the memory system in float32?",
            answer=4.5,
            why="Reading costs 4 sectors a warp, as it should; writing costs 32 instead of 4. (1 + 8) / 2 = 4.5. The"
            " time can grow by more: at 8192 x 8192 on an H200 the naive kernel takes 7.5 times as long as a copy.",
            predict=True,
        ),
        Question(
            ask="A warp reads one column of `__shared__ float tile[32][32]`. In how many wavefronts is it served?",
            answer=32.0,
            why="Bank = address / 4 modulo 32. Rows are 32 words apart, so all lanes meet in one bank and are served"
            " one after another. With 33 words a row the lanes fall into 32 different banks: one wavefront.",
        ),
        Question(
            ask="You pad the tile from 32 to 33 columns. What happens to the sectors that global memory moves?",
            choices=(
                "they fall by a factor of 32",
                "they fall to a half",
                "they stay as they are",
                "they grow by 1/32",
            ),
            answer="they stay as they are",
            why="Padding changes where the tile lies in shared memory, which is on the chip. It removes bank"
            " conflicts; the tile itself is what made the global accesses coalesced.",
        ),
    ),
    explain="A padded tile of 32 by 33 floats with 4-byte accesses stops short of a copy: each thread has too few"
    " bytes in flight, and every 4 bytes cost two shared-memory instructions. An expert widens the accesses to 16"
    " bytes, transposes small blocks in registers, and swaps padding for an XOR swizzle (column ^ row), because padded"
    " rows are not aligned to 16 bytes. For bfloat16 two elements share a bank, so they have to be paired before they"
    " are stored. On Hopper the tensor memory accelerator (TMA) can do the global side of both copies, swizzle"
    " included. And the best transpose is none: a matrix product reads either order.",
)
