"""Matrix product, naive: a thread an element of the output, and which of the two indices the lanes run along.

Week 4. out = a @ b for contiguous float32 matrices a (m x k) and b (k x n) of any size, in strict float32.
"""

import torch

from kernelpath.course import draw
from kernelpath.course.spec import Exercise, Question, Tolerance, Traffic
from kernelpath.lanes import cuda

LANES_DOWN = cuda.Kernel(
    "lanes_down_a_column.cu",
    r"""
    __global__ void matmul(const float* a, const float* b, float* out, int m, int n, int k) {
        const int row = blockIdx.x * blockDim.x + threadIdx.x;
        const int column = blockIdx.y * blockDim.y + threadIdx.y;
        if (row >= m || column >= n) return;
        float sum = 0;
        for (int i = 0; i < k; ++i) sum += a[(long long)row * k + i] * b[(long long)i * n + column];
        out[(long long)row * n + column] = sum;
    }
    """,
    "matmul",
)


def lanes_down_a_column(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The same kernel with rows and columns exchanged: the lanes of a warp are in 32 rows of a and of out."""
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n)
    LANES_DOWN[((m + 31) // 32, (n + 7) // 8), (32, 8)](a, b, out, m, n, k)
    return out


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
        {"m": 7, "n": 31, "k": 33},
        {"m": 8, "n": 32, "k": 32},
        {"m": 9, "n": 33, "k": 31},
        {"m": 1, "n": 127, "k": 61},
        {"m": 61, "n": 1, "k": 127},
        {"m": 8193, "n": 1, "k": 1},
        {"m": 96, "n": 128, "k": 64},
    ),
    vary=("m", "n", "k"),
    reference=reference,
    # A float32 sum of 4096 terms misses by 1.3e-6 of the root mean square at most; in TF32 54 to 96 % of the elements
    # are off by more than this, for k from 32 to 4096.
    tolerance={"float32": Tolerance(rtol=1e-5, atol=1e-5)},
    bench={"m": 2048, "n": 2048, "k": 2048},
    baseline=lanes_down_a_column,
    min_speedup=4.0,  # 14.5 on an H200
    bytes_moved=lambda m, n, k: 4 * (m * k + k * n + m * n),
    flops=lambda m, n, k: 2 * m * n * k,
    traffic=Traffic(sectors=1.3),
    hints=(
        "One thread makes one element of out: a loop over k, with a sum in a register. The grid has two dimensions, as"
        " in matrix_add. Of the three matrices, which are read or written along a row by neighbouring columns?",
        "Let threadIdx.x run along the columns. Then the 32 lanes of a warp read one element of a (all the same one, a"
        " broadcast), 32 neighbours of b, and write 32 neighbours of out. The other way round, they are in 32 rows of a"
        " and of out.",
        "`const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;"
        " if (row >= m || column >= n) return; float sum = 0; for (int i = 0; i < k; ++i) sum += a[(long long)row * k +"
        " i] * b[(long long)i * n + column]; out[(long long)row * n + column] = sum;`, on a grid of"
        " ((n + 31) // 32, (m + 7) // 8) blocks of (32, 8). The (long long) is there because row * k may exceed 2^31.",
    ),
    questions=(
        Question(
            ask="How many floating-point operations does the product of two 4096 x 4096 matrices take, in units of"
            " 10^9? Count a multiplication and an addition as two.",
            answer=137.4,
            tolerance=0.01,
            why="4096 * 4096 elements, each a sum of 4096 products: 2 * 4096^3 = 137.4e9.",
        ),
        Question(
            ask="Two 4096 x 4096 float32 matrices are multiplied. How many operations is that for each byte that has to"
            " be moved (both inputs read once, the result written once)?",
            answer=682.7,
            tolerance=0.01,
            why="2 * 4096^3 operations over 3 * 4 * 4096^2 bytes: 4096 / 6. An H200 does about 12 float32 operations in"
            " the time of a byte, so a good product is bound by arithmetic, not by memory.",
        ),
        Question(
            ask="How many bytes does the naive kernel load for each multiply-add, if nothing is shared between"
            " threads?",
            answer=8.0,
            why="One element of a and one of b, 4 bytes each. A quarter of an operation a byte, where 12 would balance"
            " the machine: whatever catches these loads (L2, L1) decides the speed.",
        ),
        Question(
            ask="With the lanes along the columns, how many 32-byte sectors do a warp's two loads of one step touch"
            " together?",
            answer=5.0,
            why="One for the element of a that all lanes share, and 4 for 32 neighbouring elements of b. With the lanes"
            " down a column it would be 32 and 1.",
            predict=True,
        ),
    ),
    explain="Both orders compute the same sums with the same loads. Lanes along the columns turn 33 sectors a step into"
    " 5, and that is all that distinguishes this kernel from its baseline. It is still far from the machine: two loads"
    " for one multiply-add keep the path between L1 and the registers busy, while the arithmetic idles nine tenths of"
    " the time. Neither more threads nor wider loads help much. What helps is reuse: an element of a is needed by n"
    " threads, an element of b by m. An expert asks at each level of the machine how often a byte is used once it is"
    " there. Week 4 goes on with shared memory, then registers.",
)
