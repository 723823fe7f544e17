"""Matrix product, tiled: each element that is loaded is used by a whole tile.

Week 4. out = a @ b for contiguous float32 matrices a (m x k) and b (k x n) of any size, in strict float32.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch

from kernelpath.course import draw, registry
from kernelpath.course.spec import Exercise, Question, Tolerance, Traffic


@cache
def naive() -> Callable[..., torch.Tensor]:
    """The reference kernel of matmul_naive: what this exercise has to leave behind."""
    item = registry.find("matmul_naive", Path(__file__).parents[2])
    solution = registry.import_file(item.solution, "kernelpath_naive", listed=False)
    return solution.matmul  # type: ignore[no-any-return]


def inputs(rng: torch.Generator, m: int, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """b has mean 0: sums stay small beside their terms, and an error of the terms cannot hide in a large sum."""
    return draw.normal(rng, m, k), draw.normal(rng, k, n).sub_(1)


def reference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.double() @ b.double()


EXERCISE = Exercise(
    entry="matmul",
    inputs=inputs,
    cases=(
        {"m": 1, "n": 1, "k": 1},
        {"m": 31, "n": 33, "k": 32},
        {"m": 64, "n": 32, "k": 31},
        {"m": 17, "n": 127, "k": 65},
        {"m": 129, "n": 4, "k": 8},
        {"m": 1, "n": 129, "k": 61},
        {"m": 128, "n": 128, "k": 128},
    ),
    vary=("m", "n", "k"),
    reference=reference,
    # As in matmul_naive: a float32 sum misses by 1.3e-6 of the root mean square at most, TF32 fails widely.
    tolerance={"float32": Tolerance(rtol=1e-5, atol=1e-5)},
    bench={"m": 4096, "n": 4096, "k": 4096},
    baseline=lambda a, b: naive()(a, b),
    min_speedup=3.0,  # on an H200 a tile of 32 reaches 1.5, 4 x 4 outputs a thread 3.4, the reference kernel 7.4
    bytes_moved=lambda m, n, k: 4 * (m * k + k * n + m * n),
    flops=lambda m, n, k: 2 * m * n * k,
    # At 128 x 128 x 128 tiles of 32 move 3 times the compulsory bytes, tiles of 16 move 5.7 times as many.
    traffic=Traffic(sectors=1.3, bank_conflicts=1.0, bytes=3.5),
    hints=(
        "All 32 x 32 threads of a block need the same 32 rows of a and the same 32 columns of b. They cannot all be on"
        " the chip at once. Which piece of each do they need for the first 32 steps along k?",
        "Walk along k in steps of 32. In each: every thread loads one element of a and one of b into two __shared__"
        " tiles, 0 where it lies outside; __syncthreads(); 32 multiply-adds from the tiles; __syncthreads() again,"
        " before anyone overwrites them. Guard the loads and the store, never the barriers.",
        "`__shared__ float of_a[32][32], of_b[32][32]; for (int begin = 0; begin < k; begin += 32) { of_a[y][x] = row"
        " < m && begin + x < k ? a[row * k + begin + x] : 0; of_b[y][x] = begin + y < k && column < n ? b[(begin + y)"
        " * n + column] : 0; __syncthreads(); for (int i = 0; i < 32; ++i) sum += of_a[y][i] * of_b[i][x];"
        " __syncthreads(); }` is right. For the second star a thread has to make several outputs, such as 4 x 4 or 8 x"
        " 8 of a tile of 64 or 128, so that each value it reads from shared memory is used 4 or 8 times. Do not give a"
        " thread neighbours. Thread x makes columns x, x + 16, x + 32, x + 48: neighbouring lanes stay at neighbouring"
        " addresses.",
    ),
    questions=(
        Question(
            ask="Tiles of 32 x 32: how many times is each element used after it was loaded into shared memory, before"
            " it is thrown away?",
            answer=32.0,
            why="An element of the tile of a is needed by the 32 threads of its row, one of b by the 32 of its column.",
        ),
        Question(
            ask="m = n = k = 128 and tiles of 32: how many times the compulsory bytes does the kernel move?",
            answer=3.0,
            why="a is read by each of 4 columns of blocks, b by each of 4 rows, out is written once: (4 + 4 + 1) / 3.",
            predict=True,
        ),
        Question(
            ask="A thread makes 8 x 8 outputs. How many floats does it read from shared memory for each multiply-add?",
            answer=0.25,
            why="8 of a and 8 of b for 64 multiply-adds: 16 / 64. With one output a thread it is 2, eight times as"
            " many.",
        ),
        Question(
            ask="Why does the loop need a second barrier, after the multiply-adds?",
            choices=(
                "so that no warp overwrites a tile that is still read",
                "so that all sums are complete before they are stored",
                "so that the loads of the next tile begin all at once",
            ),
            answer="so that no warp overwrites a tile that is still read",
            why="A fast warp would go on to the next step and store its part of the next tile. Sums live in registers"
            " of their own thread and need no barrier.",
        ),
        Question(
            ask="At 4096 x 4096 x 4096 on an H200: is a tile of 32 with one output a thread faster than the naive"
            " kernel by the factor by which its traffic falls (20)?",
            choices=("yes, about", "no, by far less", "no, by far more"),
            answer="no, by far less",
            why="It is 1.5 times as fast. The caches already caught most of the naive kernel's traffic. Both need two"
            " loads from the chip for each multiply-add, and it hardly matters whether L1 or shared memory serves"
            " them.",
            predict=True,
        ),
    ),
    explain="A tile cuts the traffic of memory by its width; outputs in registers cut the traffic of shared memory by"
    " theirs. Both are one idea: keep what you have loaded where the next user is. With 8 x 8 outputs a thread the"
    " arithmetic is nearly all that is left, and an expert goes after the rest: the next tile is loaded while this one"
    " is multiplied, first through registers, then with cp.async into a ring of buffers that needs one barrier a step;"
    " tiles are swizzled against bank conflicts; blocks are numbered so that neighbours share rows in L2. You do that"
    " in week 8, and then leave float32 arithmetic for the tensor cores, which multiply whole tiles with one"
    " instruction and are more than ten times as fast.",
)
