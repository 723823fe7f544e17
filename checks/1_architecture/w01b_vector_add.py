"""Vector addition: one element a thread, then a grid-stride loop with bytes in flight.

Week 1. out = x + y for float32 vectors of any length, contiguous but not always aligned to 16 bytes.
"""

import torch

from kernelpath.course import draw
from kernelpath.course.spec import Exercise, Question, Tolerance, Traffic


def inputs(rng: torch.Generator, n: int, offset: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Two vectors of n elements: x begins `offset` elements into its storage, y twice as far into its own."""
    x, y = draw.normal(rng, n + offset), draw.normal(rng, n + 2 * offset)
    return x[offset:], y[2 * offset :]


def reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.double() + y.double()


EXERCISE = Exercise(
    entry="vector_add",
    inputs=inputs,
    cases=(
        {"n": 1, "offset": 0},
        {"n": 255, "offset": 0},
        {"n": 256, "offset": 0},
        {"n": 257, "offset": 0},
        {"n": 10_007, "offset": 1},
        {"n": 262_147, "offset": 0},  # a prime just past 1024 blocks of 256
        {"n": 393_216, "offset": 0},
    ),
    vary=("n",),
    reference=reference,
    # A float32 sum is rounded once: off by 2^-24 (6.0e-8) at most. With x and y in TF32 or bfloat16 the
    # median error is 1.4e-4 or 1.8e-3, and 99.9 % of the elements fail.
    tolerance={"float32": Tolerance(rtol=6.0e-8, atol=0.0)},
    bench={"n": 1 << 26, "offset": 0},  # 256 MiB a vector, 13 times the L2 of an H200 in all
    baseline=torch.add,
    min_speedup=0.7,
    bytes_moved=lambda n, offset: 12 * n,
    flops=lambda n, offset: n,
    traffic=Traffic(sectors=1.3, bytes=1.3),  # 1.25 is a warp of 4-byte accesses that straddles a sector
    hints=(
        "Every thread has to find out which element is its own, and whether there is one. Which three built-in"
        " variables say where a thread stands in the grid?",
        "i = blockIdx.x * blockDim.x + threadIdx.x. The last block reaches past the end: guard it with `if (i < n)`."
        " On the Python side the grid needs n / 256 blocks, rounded up: (n + 255) // 256.",
        "One loop serves any n on any grid: `for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;"
        " i < n; i += (long long)gridDim.x * blockDim.x) out[i] = x[i] + y[i];`. For speed, let a thread load a"
        " float4 from each vector where all three addresses are multiples of 16, and add the last n % 4 one by one.",
    ),
    questions=(
        Question(
            ask="How many MB (10^6 bytes) does the sum of two float32 vectors of 1,000,000 elements have to move?",
            answer=12.0,
            why="Two vectors are read and one is written, 4 bytes an element each: 3 * 4 * 10^6 bytes.",
        ),
        Question(
            ask="n = 1000 and blocks of 256 threads, one element a thread. How many threads have nothing to do?",
            answer=24.0,
            why="1000 / 256 rounded up is 4 blocks, 1024 threads. The guard sends the last 24 home; without it they"
            " would write past the end of out.",
        ),
        Question(
            ask="A GPU copies at 4,000 GB/s. What is the least time for n = 2^26, in microseconds?",
            answer=201.3,
            tolerance=0.02,
            why="12 * 2^26 bytes are 805 MB; 805e6 / 4000e9 s = 201 us. The 67 million additions would take a"
            " hundredth of that, so the bytes alone decide.",
            predict=True,
        ),
        Question(
            ask="You double the block from 256 to 512 threads and halve the grid. What happens to the time?",
            choices=("it halves", "it doubles", "it hardly changes", "it grows by half"),
            answer="it hardly changes",
            why="The same warps issue the same requests. Memory is the limit, and both shapes fill every SM with"
            " threads, so both keep enough loads in flight.",
            predict=True,
        ),
    ),
    explain="An addition costs 12 bytes and one operation, so the only thing to tune is how many bytes are in flight."
    " Latency times bandwidth says how many are needed (Little's law): 0.7 to 0.8 us, when memory is busy, at 4.3 TB/s,"
    " shared by the 132 SMs of an H200, are 23 to 26 KB an SM. With a 4-byte load from each input, the 2048 threads"
    " that an SM holds at a time ask for 16 KB; with 16-byte loads for 64 KB, and a quarter of the blocks have to be"
    " started. More loads a thread gain nothing further, as an expert finds out by trying. With 16-byte loads the"
    " kernel runs at the speed of a copy, and there is nothing left to gain in it: the next gain is not to run it at"
    " all, by fusing the addition into the kernel that made x or the one that reads out (week 13).",
)
