"""Stencil: threads of a block share what they read, with a halo and a barrier.

Week 2. A triangle of radius 8 smooths a float32 vector: out[i] = sum of (9 - |k|) x[i + k] / 81 for k = -8 .. 8.
"""

import torch

from kernelpath.course import draw
from kernelpath.course.spec import Exercise, Question, Tolerance, Traffic
from kernelpath.lanes import cuda

RADIUS = 8

GLOBAL_MEMORY = cuda.Kernel(
    "stencil_in_global_memory.cu",
    r"""
    __global__ void stencil(const float* x, float* out, long long n) {
        const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
        if (i >= n) return;
        const bool inner = i >= 8 && i + 8 < n;
        float sum = 0;
        for (int k = -8; k <= 8; ++k) {
            if (inner || (i + k >= 0 && i + k < n)) sum += (9 - abs(k)) * x[i + k];
        }
        out[i] = sum / 81;
    }
    """,
    "stencil",
)


def global_memory(x: torch.Tensor) -> torch.Tensor:
    """The stencil as its formula reads: a thread an element, which loads all 17 values itself."""
    out = torch.empty_like(x)
    GLOBAL_MEMORY[(x.numel() + 255) // 256, 256](x, out, x.numel())
    return out


def inputs(rng: torch.Generator, n: int) -> tuple[torch.Tensor]:
    return (draw.normal(rng, n),)


def reference(x: torch.Tensor) -> torch.Tensor:
    padded = torch.nn.functional.pad(x.double(), (RADIUS, RADIUS))
    out = torch.zeros_like(x, dtype=torch.float64)
    for k in range(-RADIUS, RADIUS + 1):
        start = RADIUS + k
        out.add_(padded[start : start + x.numel()], alpha=(RADIUS + 1 - abs(k)) / (RADIUS + 1) ** 2)
    return out


EXERCISE = Exercise(
    entry="stencil",
    inputs=inputs,
    cases=(
        {"n": 1},
        {"n": 7},
        {"n": 255},
        {"n": 256},
        {"n": 257},
        {"n": 1023},
        {"n": 1025},
        {"n": 10_007},
        {"n": 65_536},
    ),
    vary=("n",),
    reference=reference,
    # A float32 sum misses by 2.3e-7 of the root mean square at most; with x in TF32 99 % of the elements fail.
    tolerance={"float32": Tolerance(rtol=1e-6, atol=5e-7)},
    bench={"n": 1 << 26},  # 512 MiB in and out, 9 times the L2 of an H200
    baseline=global_memory,
    min_speedup=2.0,  # on an H200 a plain tile reaches 1.3, the reference kernel 3.3
    bytes_moved=lambda n: 8 * n,
    flops=lambda n: 34 * n,
    traffic=Traffic(sectors=1.3, bank_conflicts=0.5, bytes=1.2),
    hints=(
        "Written as the formula reads, 17 threads load every element. Which threads are they? They sit next to each"
        " other, nearly always in one block, and the threads of a block can share memory.",
        "Let a block load its stretch of x into a __shared__ array first, together with a halo: the 8 elements before"
        " it and the 8 behind it. Elements outside the vector count as 0. After __syncthreads() everyone reads from"
        " the array. No thread may leave before the barrier.",
        "`__shared__ float tile[256 + 16]; const long long first = blockIdx.x * 256LL - 8; for (int t = threadIdx.x; t"
        " < 256 + 16; t += 256) { const long long i = first + t; tile[t] = i >= 0 && i < n ? x[i] : 0.0f; }"
        " __syncthreads();` and then `for (int k = 0; k <= 16; ++k) sum += (9 - abs(k - 8)) * tile[threadIdx.x + k];`."
        " For the second star let a thread make four neighbouring elements out of 20 values that it holds in"
        " registers.",
    ),
    questions=(
        Question(
            ask="Each thread loads its 17 values from global memory. How many times does the kernel ask for each"
            " element of a long vector?",
            answer=17.0,
            why="Element i is needed by the threads i - 8 to i + 8.",
        ),
        Question(
            ask="A block of 256 threads makes 256 elements of out from a tile with its halo. How many elements of x"
            " does it load?",
            answer=272.0,
            why="Its own 256, and 8 on either side: 6 % more. With a tile of 1024 it would be 1.6 %.",
        ),
        Question(
            ask="A tile of 256 elements with its halo: how many times the compulsory bytes does the kernel move?",
            answer=1.03125,
            tolerance=0.005,
            why="It reads 272 and writes 256 elements, where 256 and 256 are compulsory: 528 / 512.",
            predict=True,
        ),
        Question(
            ask="Caches would catch most of the 17 loads anyway. Why is the kernel without a tile still slower?",
            choices=(
                "each load is a request, and L1 serves few of them a cycle",
                "L1 is too small to hold 17 values for each of the threads",
                "the values have to come from DRAM for each thread anew",
            ),
            answer="each load is a request, and L1 serves few of them a cycle",
            why="DRAM sees each byte about once in both kernels. But 17 requests a warp have to go through L1, most of"
            " them across two cache lines. Bytes are not the only thing that can run out: requests can, too.",
        ),
    ),
    explain="Shared memory is a cache that you fill yourself. It pays where threads of one block need the same bytes,"
    " and it costs a barrier: between filling and using, everybody waits for the slowest. The plain tile still asks"
    " shared memory 17 times for each element, so an expert goes one level further: a thread that makes four"
    " neighbouring elements needs 20 values for them instead of 68, which it takes with five 16-byte loads and keeps in"
    " registers. It is the same step again (share among threads, then share among the outputs of one thread), and in"
    " week 4 it decides how fast a matrix product is. Longer vectors of weights, or two dimensions, change the halo but"
    " not the idea.",
)
